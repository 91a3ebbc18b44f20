"""ExpiredElements: tells which pre-fetched elements have expired meanwhile.

Rule: elements expire by the clock of the server, which answers say; in between, the client's own
clock measures how much time has passed. So an element counts as expired at the time at which it is,
or, by the duration of an answer, later; never before.
Must not know: channels, requests.
"""

from kledger.named_topics.model import NO_LIMIT
from kledger.native.client.named_topics.element import Element
from kledger.runtime.clock import Clock


class ExpiredElements:
    """Of one subscriber."""

    def __init__(self, clock: Clock, expiry_ms: int) -> None:
        """Args: expiry_ms: of the topic; NO_LIMIT: its elements do not expire."""
        self._clock = clock
        self._expiry_ms = expiry_ms
        self._behind_ms = 0
        """The wall time of the server, less the monotonic time here."""
        self.is_possible = False
        """Whether there may be any."""

    def note_server_time(self, now_ms: int) -> None:
        """Note what an answer says; 0: nothing."""
        if now_ms and self._expiry_ms != NO_LIMIT:
            self._behind_ms = now_ms - self._clock.monotonic_ms()
            self.is_possible = True

    def __contains__(self, element: Element) -> bool:
        """Whether an element has expired."""
        now_ms = self._behind_ms + self._clock.monotonic_ms()
        return self.is_possible and element.timestamp_ms + self._expiry_ms <= now_ms
