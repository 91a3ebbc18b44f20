"""PendingResets: the resets that a client has requested, and the consumer links that they end.

Rule: when a client has the answer to a reset, every link that was opening or open at its request
has ended. The server also ends the link itself, but that message may arrive after the answer. A
link waits for running resets before it is opened; one that overlaps with a reset nevertheless
counts as older.
Must not know: how a link ends, how a reset is sent.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from kledger.native.broker import ConsumerRequest
from kledger.topics.topic_names import resolve_name


class ResettableLink(Protocol):
    """A consumer link that a reset can end."""

    @property
    def request(self) -> ConsumerRequest:
        """The request that opened it."""
        ...

    def end_by_reset(self) -> None:
        """End the link as after a reset, unless it has ended already."""
        ...


@dataclass(eq=False, slots=True, kw_only=True)
class _PendingReset:
    topic: str
    subscription: str
    partition: int | None
    links: list[ResettableLink] = field(default_factory=list)
    done: "asyncio.Future[None]"

    def concerns(self, request: ConsumerRequest) -> bool:
        return (
            request.subscription == self.subscription
            and resolve_name(request.topic) == self.topic
            and self.partition in {None, request.partition}
        )


class PendingResets:
    """The unanswered resets of one client."""

    def __init__(self) -> None:
        self._running: dict[_PendingReset, None] = {}

    @contextmanager
    def running(
        self,
        topic: str,
        subscription: str,
        partition: int | None,
        links: Iterable[ResettableLink],
    ) -> Iterator[None]:
        """Run the body, which sends the reset; when it succeeds, end the links concerned.

        Args:
            topic: by either of its names.
            subscription: the one to reset.
            partition: None: all of them.
            links: all consumer links of the client, also those that are being opened.
        """
        reset = _PendingReset(
            topic=resolve_name(topic),
            subscription=subscription,
            partition=partition,
            done=asyncio.get_running_loop().create_future(),
        )
        reset.links += (each for each in links if reset.concerns(each.request))
        self._running[reset] = None
        try:
            yield
            for link in reset.links:
                link.end_by_reset()
        finally:
            del self._running[reset]
            reset.done.set_result(None)

    async def wait_before_opening(self, request: ConsumerRequest) -> None:
        """Wait for the resets that run now, but not for later ones."""
        running = [each.done for each in self._running if each.concerns(request)]
        if running:
            await asyncio.wait(running)

    def note_opening(self, link: ResettableLink) -> None:
        """Let the resets that run now end this link, too."""
        for reset in self._running:
            if reset.concerns(link.request):
                reset.links.append(link)
