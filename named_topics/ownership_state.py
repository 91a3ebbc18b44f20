"""Ownership: which subscribers a group has, and which of them owns each channel. Pure.

Rule: every change of the members allocates all channels anew, by `channel_plan`, and begins an
epoch. A channel that gets another owner gets a new ownership, by which its former owner's requests
and elements are recognized. A subscriber is alive until its deadline; each heartbeat moves it.
Must not know: positions, clocks, requests.
"""

from kledger.named_topics.channel_plan import allocate

TIMED_OUT_MAX = 1_000
"""Subscribers that are remembered after their timeout; the oldest are forgotten first."""
NO_OWNER = 0


class ChannelOwnership:
    """The members of one group.

    Attributes:
        epoch: how often the channels were allocated.
    """

    __slots__ = ("_deadlines", "_owners", "_ownerships", "_timed_out", "_timeout_ms", "epoch")

    def __init__(self, channel_count: int, *, timeout_ms: int) -> None:
        """Begin without members.

        Args:
            channel_count: how many channels there are.
            timeout_ms: the time between two heartbeats at most; 0: no limit.
        """
        self.epoch = 0
        self._timeout_ms = timeout_ms
        self._deadlines: dict[int, int] = {}
        self._owners = [NO_OWNER] * channel_count
        self._ownerships = [0] * channel_count
        self._timed_out: dict[int, None] = {}

    @property
    def members(self) -> list[int]:
        """The ids of the subscribers, ascending."""
        return sorted(self._deadlines)

    @property
    def channel_count(self) -> int:
        """How many channels there are."""
        return len(self._owners)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next subscriber times out, if none sends a heartbeat; None: never."""
        return min(self._deadlines.values()) if self._deadlines and self._timeout_ms else None

    def __contains__(self, member: int) -> bool:
        return member in self._deadlines

    def has_timed_out(self, member: int) -> bool:
        """Whether a subscriber was removed by its timeout and has not joined again."""
        return member in self._timed_out

    def owner(self, channel: int) -> int:
        """The owner of a channel, NO_OWNER without one."""
        return self._owners[channel] if 0 <= channel < len(self._owners) else NO_OWNER

    def ownership(self, channel: int) -> int:
        """The number of the ownership that holds."""
        return self._ownerships[channel]

    def owns(self, member: int, channel: int) -> bool:
        """Whether a subscriber owns a channel."""
        return member != NO_OWNER and self.owner(channel) == member

    def channels_of(self, member: int) -> list[int]:
        """The channels of a subscriber, ascending."""
        return [channel for channel, owner in enumerate(self._owners) if owner == member]

    def join(self, member: int, now_ms: int) -> None:
        """Add a subscriber; one that is a member already loses what it owned and gets it anew."""
        assert member > NO_OWNER, f"expected an id above {NO_OWNER}, got {member}"
        self._timed_out.pop(member, None)
        for channel in self.channels_of(member):
            self._owners[channel] = NO_OWNER
        self._deadlines[member] = now_ms + self._timeout_ms
        self._allocate()

    def leave(self, member: int) -> bool:
        """Remove a subscriber; return whether it was a member."""
        self._timed_out.pop(member, None)
        if self._deadlines.pop(member, None) is None:
            return False
        self._allocate()
        return True

    def heartbeat(self, member: int, alive_ms: int) -> None:
        """Note that a subscriber was alive at a time, which may be in the past."""
        known = self._deadlines.get(member)
        if known is not None:
            self._deadlines[member] = max(known, alive_ms + self._timeout_ms)

    def expire(self, now_ms: int) -> list[int]:
        """Remove the subscribers whose deadline has come; return them."""
        if not self._timeout_ms:
            return []
        expired = [each for each, deadline in self._deadlines.items() if deadline <= now_ms]
        for member in expired:
            del self._deadlines[member]
            self._timed_out[member] = None
        while len(self._timed_out) > TIMED_OUT_MAX:
            del self._timed_out[next(iter(self._timed_out))]
        if expired:
            self._allocate()
        return expired

    def grow(self, channel_count: int) -> bool:
        """Add channels; return whether there are more than before."""
        added = channel_count - len(self._owners)
        if added <= 0:
            return False
        self._owners += [NO_OWNER] * added
        self._ownerships += [0] * added
        self._allocate()
        return True

    def _allocate(self) -> None:
        self.epoch += 1
        allocated = allocate(len(self._owners), self._deadlines)
        owners = [NO_OWNER] * len(self._owners)
        for member, channels in allocated.items():
            for channel in channels:
                owners[channel] = member
        for channel, owner in enumerate(owners):
            if owner not in {self._owners[channel], NO_OWNER}:
                self._ownerships[channel] += 1
        self._owners = owners
