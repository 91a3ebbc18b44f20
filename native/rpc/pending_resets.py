"""Which consumer links end when the client that has them sets their subscription's position.

Rule: when a client has the answer to a change that it asked for, every link that was open or being
opened when it asked has ended. The server says so by the link itself, and that may arrive later
than the answer. A link is not opened while such a change runs; one that overlaps with a change all
the same counts as older than it.
Must not know: how a link ends, and how a change is asked for.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from kledger.native.broker import ConsumerRequest
from kledger.topics.topic_names import resolve_name


class ResettableLink(Protocol):
    """A consumer link, as far as a change concerns it."""

    @property
    def request(self) -> ConsumerRequest:
        """What it was opened for."""
        ...

    def end_by_reset(self) -> None:
        """Deliver nothing more and say that a reset was the reason; nothing if it has ended."""
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
    """The changes that one client has asked for and has no answer to."""

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
        """Surround the request; when it has succeeded, end the links that it concerns.

        Args:
            topic: by either of its names.
            subscription: whose position is set.
            partition: None: all of them.
            links: all that the client has, those that are being opened included.
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
        """Wait for the changes that run now; not for later ones, or it might never end."""
        running = [each.done for each in self._running if each.concerns(request)]
        if running:
            await asyncio.wait(running)

    def note_opening(self, link: ResettableLink) -> None:
        """Count a link as older than the changes that run by now."""
        for reset in self._running:
            if reset.concerns(link.request):
                reset.links.append(link)
