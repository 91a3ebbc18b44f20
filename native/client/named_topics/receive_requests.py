"""ReceiveRequests: the receives of a subscriber that wait, in their order.

Rule: the oldest one is served first, and none is served before it. A receive that was cancelled is
skipped; if it had been served, its elements move on to the receives behind it whose callers have
not run since, so that elements stay in order.
Must not know: where elements come from.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from kledger.native.client.named_topics.element import Element

Received: TypeAlias = list[Element]


class ReceiveRequest:
    """One receive.

    Attributes:
        count: how many elements it takes at most.
        number: how many receives came before it.
        outcome: the future of the elements; empty: the topic is.
    """

    __slots__ = ("count", "number", "outcome")

    def __init__(self, count: int, number: int) -> None:
        self.count = count
        self.number = number
        self.outcome: asyncio.Future[Received] = asyncio.get_running_loop().create_future()


class ReceiveRequests:
    """Of one subscriber.

    Attributes:
        count: how many receives there have been.
        held_count: requests about positions that run or wait: no receive is served meanwhile.
    """

    def __init__(self) -> None:
        self._waiting: deque[ReceiveRequest] = deque()
        self._served: dict[ReceiveRequest, None] = {}
        """Those whose callers have not run since, the oldest first."""
        self.count = 0
        self.held_count = 0

    @property
    def is_held(self) -> bool:
        """Whether no receive is served now."""
        return self.held_count > 0

    @property
    def oldest(self) -> ReceiveRequest | None:
        """The receive that is served next; None: none waits."""
        while self._waiting and self._waiting[0].outcome.done():
            self._waiting.popleft()
        return self._waiting[0] if self._waiting else None

    def add(self, count: int) -> ReceiveRequest:
        """Queue a receive behind all others."""
        request = ReceiveRequest(count, self.count)
        self.count += 1
        self._waiting.append(request)
        return request

    def serve(self, request: ReceiveRequest, found: Received) -> None:
        """Complete the oldest one with elements."""
        self._served[request] = None
        request.outcome.set_result(found)

    def has_unreceived_before(self, request: ReceiveRequest) -> bool:
        """Return whether receives before this one are served, and their callers have not run."""
        return len(self._served) > 1 and next(iter(self._served)) is not request

    def note_received(self, request: ReceiveRequest) -> None:
        """Note that the caller has its elements now."""
        self._served.pop(request, None)

    def give_back(self, request: ReceiveRequest) -> Received:
        """Return the elements that are left over as a served receive was cancelled, in order."""
        if request not in self._served:
            return []
        behind = [each for each in self._served if each.number >= request.number]
        del self._served[request]
        elements = [each for served in behind for each in served.outcome.result()]
        for served in behind[1:]:
            found = served.outcome.result()
            count = len(found)
            found[:] = elements[:count]
            del elements[:count]
        return elements

    def complete_empty(self, before: int) -> None:
        """Complete the receives with a smaller number with nothing."""
        while (request := self.oldest) is not None and request.number < before:
            request.outcome.set_result([])

    def fail(self, error: Exception) -> None:
        """Fail all that wait."""
        for request in self._take():
            request.outcome.set_exception(error)

    def cancel(self) -> None:
        """Cancel all that wait."""
        for request in self._take():
            request.outcome.cancel()

    def _take(self) -> Sequence[ReceiveRequest]:
        waiting, self._waiting = self._waiting, deque()
        return [each for each in waiting if not each.outcome.done()]
