"""Ids of subscribers, which grow with the time of joining. Pure.

Rule: an id is larger than those before, also than those before a restart, and than the time of its
group; so a subscriber of a destroyed group of the same name is recognized by its id.
Must not know: members, clocks.
"""


def first_id(joined_ms: int) -> int:
    """Return the smallest id of the subscribers that join at a wall time, or later."""
    return joined_ms << 10


class SubscriberIds:
    """Of one server."""

    def __init__(self) -> None:
        self._last = 0

    def note_group(self, created_ms: int) -> None:
        """Note a group that is there: later ids are larger than its time."""
        self._last = max(self._last, first_id(created_ms))

    def new(self, now_ms: int) -> int:
        """Return the id of a new subscriber."""
        self._last = max(self._last + 1, first_id(now_ms))
        return self._last

    def new_group_ms(self, now_ms: int) -> int:
        """Return the time of a new group: between the ids before it and its subscribers'."""
        created_ms = max((self._last >> 10) + 1, now_ms)
        self.note_group(created_ms)
        return created_ms
