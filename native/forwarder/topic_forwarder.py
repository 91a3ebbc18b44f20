"""TopicForwarder: forwards every partition of a topic to the same partition of another topic.

Rule: a durable subscription of the source keeps the positions; the forwarder is its only consumer.
A final error of one partition ends all of them, in order. A missing target is created with the
partitions of the source; an existing one must have at least as many. An unavailable target is
waited for.
Must not know: how the two brokers are reached.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kledger.native.backoff import Backoff
from kledger.native.broker import Broker, ConsumerRequest, RecordPosition, TopicInfo
from kledger.native.errors import InvalidArgument, Timeout, TopicExists, TopicNotFound, Unavailable
from kledger.native.forwarder.forwarder import Forwarder, PrepareEntry, prepare_unchanged
from kledger.native.forwarder.forwarder_state import ForwardLimits
from kledger.native.forwarder.source import LinkSource
from kledger.native.forwarder.target import LinkTarget
from kledger.runtime.clock import Clock
from kledger.runtime.entropy import Entropy
from kledger.runtime.tasks import Supervisor
from kledger.subscriptions.model import SubscriptionType

logger = logging.getLogger(__name__)

CATCH_UP_POLL_MS = 100
"""The interval of checking whether everything is forwarded."""
TARGET_RETRY_FIRST_MS = 500
TARGET_RETRY_MAX_MS = 30_000
"""The longest delay before an unavailable target is looked up again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardRequest:
    """The topics of a forwarder.

    Attributes:
        source: a topic.
        target: another topic, or one of another broker.
        subscription: of the source; it keeps the positions.
        start: where a new subscription begins, "earliest" or "latest".
    """

    source: str
    target: str
    subscription: str
    start: str


class TopicForwarder:
    """Forwards one topic: call `open`, then `run`."""

    def __init__(
        self,
        request: ForwardRequest,
        source: Broker,
        target: Broker,
        *,
        clock: Clock,
        entropy: Entropy,
        prepare: PrepareEntry = prepare_unchanged,
        limits: ForwardLimits | None = None,
    ) -> None:
        """Args: source, target: may be the same broker; the forwarder does not close them."""
        self._request = request
        self._source = source
        self._target = target
        self._clock = clock
        self._entropy = entropy
        self._prepare = prepare
        self._limits = limits
        self._is_closed = False
        self._opening: asyncio.Task[Any] | None = None
        self._ends: list[RecordPosition] = []
        self._forwarders: list[Forwarder] = []

    @property
    def forwarded_count(self) -> int:
        """How many batches the target has confirmed."""
        return sum(each.state.forwarded_count for each in self._forwarders)

    async def open(self) -> None:
        """Look up the topics; create the subscription, and the target if it is missing.

        It waits for an unavailable target until `close`; after that `run` returns at once.

        Raises:
            TopicNotFound: there is no such source.
            InvalidArgument: the target is the source, or has too few partitions.
        """
        if self._is_closed:
            return
        task = self._opening = asyncio.current_task()
        assert task is not None, "it is opened by a task"
        cancelling_before = task.cancelling()
        try:
            await self._open()
        except asyncio.CancelledError:
            if not self._is_closed or task.uncancel() > cancelling_before:
                raise  # the caller has cancelled it
        finally:
            self._opening = None

    async def _open(self) -> None:
        request = self._request
        source = await self._source.lookup(request.source, create=False)
        count = source.partition_count
        target = await self._wait_for_target(source)
        await self._source.create_subscription(source.name, request.subscription, request.start)
        for partition in range(count):
            last = await self._source.last_record(source.name, partition)
            self._ends.append(last.record_position)
            self._forwarders.append(self._forwarder(source.name, target, partition))

    async def run(self, *, until_caught_up: bool = False) -> None:
        """Forward until `close`, or until it has caught up. Raises final errors."""
        supervisor = Supervisor()
        works = [self._run_one(each) for each in self._forwarders]
        if until_caught_up:
            works.append(self._close_when_caught_up())
        try:
            results = await asyncio.gather(
                *(supervisor.finish(work, "forward a topic") for work in works),
                return_exceptions=True,
            )
        finally:
            await supervisor.close()
        for result in results:
            if result is not None:
                raise result

    def close(self) -> None:
        """Let `open` return, and `run` when all sent batches are acknowledged."""
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        for each in self._forwarders:
            each.close()

    async def _run_one(self, forwarder: Forwarder) -> None:
        try:
            await forwarder.run()
        finally:
            self.close()

    async def _close_when_caught_up(self) -> None:
        """Close when all records from before `open` are forwarded, or the backlog is empty."""
        while not self._is_closed and not await self._is_caught_up():
            await self._clock.sleep(CATCH_UP_POLL_MS)
        self.close()

    async def _wait_for_target(self, source: TopicInfo) -> str:
        """Return the target's name as soon as its server is available.

        The subscription is created meanwhile, so that no record is missed.
        """
        request = self._request
        backoff = Backoff(self._entropy, first_ms=TARGET_RETRY_FIRST_MS, max_ms=TARGET_RETRY_MAX_MS)
        while True:
            try:
                return await self._find_target(source)
            except (Unavailable, Timeout) as error:
                logger.warning("the target %s is not available: %s", request.target, error)
            await self._source.create_subscription(source.name, request.subscription, request.start)
            await self._clock.sleep(backoff.next_ms())

    async def _find_target(self, source: TopicInfo) -> str:
        """Return the target's name; create it if it is missing. More partitions are fine."""
        name, count = self._request.target, source.partition_count
        try:
            found = await self._target.lookup(name, create=False)
        except TopicNotFound:
            with suppress(TopicExists):
                await self._target.create_topic(name, count, {})
            found = await self._target.lookup(name, create=False)
        if self._source is self._target and found.name == source.name:
            raise InvalidArgument(f"topic {source.name} cannot be forwarded to itself")
        if found.partition_count < count:
            raise InvalidArgument(
                f"target {found.name} has {found.partition_count} partitions, expected at least"
                f" the {count} of the source"
            )
        return found.name

    def _forwarder(self, source: str, target: str, partition: int) -> Forwarder:
        request = ConsumerRequest(
            topic=source,
            partition=partition,
            subscription=self._request.subscription,
            type=SubscriptionType.EXCLUSIVE,
            start=self._request.start,
            consumer_name="forwarder",
            unacked_max=0,
            unacked_subscription_max=0,
        )
        return Forwarder(
            f"{source}-{partition}",
            LinkSource(self._source, request),
            LinkTarget(self._target, target, partition, name="forwarder", entropy=self._entropy),
            clock=self._clock,
            prepare=self._prepare,
            limits=self._limits,
        )

    async def _is_caught_up(self) -> bool:
        pairs = list(zip(self._forwarders, self._ends, strict=True))
        if all(_has_passed(forwarder, end) for forwarder, end in pairs):
            return True
        if any(forwarder.state.in_flight for forwarder, _ in pairs):
            return False
        request = self._request
        try:
            stats = await self._source.subscription_stats(request.source, request.subscription)
        except Unavailable:
            return False
        return not stats.backlog


def _has_passed(forwarder: Forwarder, end: RecordPosition) -> bool:
    marked_upto = forwarder.state.marked_upto
    is_empty = end.position.entry_id < 0
    return is_empty or (marked_upto is not None and marked_upto >= end.position)
