"""ElementExpiry: the first element of a channel that has not expired. A shell.

Rule: the times of the elements of a channel grow, so the answer to a search holds until the element
that was found expires itself.
Must not know: groups.
"""

from typing import NamedTuple
from weakref import WeakKeyDictionary

from kledger.named_topics.model import NO_LIMIT
from kledger.runtime.clock import Clock
from kledger.topics import PartitionLog


class _Found(NamedTuple):
    """An answer, and the wall time until which it holds."""

    offset: int
    until_ms: int


class ElementExpiry:
    """What is known about the channels of one server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: WeakKeyDictionary[PartitionLog, _Found] = WeakKeyDictionary()

    def known_offset(self, log: PartitionLog) -> int:
        """Return the answer of the last search; plain."""
        found = self._found.get(log)
        return 0 if found is None else found.offset

    async def first_offset(self, log: PartitionLog, expiry_ms: int) -> int:
        """Return the offset of the first element that is younger than the expiry.

        Args:
            log: of the channel.
            expiry_ms: NO_LIMIT: elements do not expire.

        Raises:
            TopicsError: the log cannot be read.
        """
        if expiry_ms == NO_LIMIT:
            return 0
        now_ms = self._clock.now_ms()
        found = self._found.get(log)
        if found is None or found.until_ms <= now_ms:
            end = log.high_watermark  # what is appended from now on is younger
            first = await log.offset_for_timestamp(now_ms - expiry_ms + 1)
            if first is None:
                found = _Found(end, now_ms + expiry_ms)
            else:
                found = _Found(first.offset, first.timestamp + expiry_ms)
            self._found[log] = found
        return found.offset
