"""PartitionSubscriptions: all subscriptions of one partition, over its managed ledger. A shell.

Rule: a durable subscription is the durable cursor of its name, however that was created; a
non-durable one exists until its last consumer has left. When the managed ledger is closed or
fenced, all subscriptions are closed.
Must not know: topics, consumers' connections.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from kledger.ledger import EARLIEST, LATEST, Cursor, LedgerError, LedgerState, ManagedLedger
from kledger.runtime.clock import Clock
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.containment import NamedUnit
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from kledger.subscriptions.errors import (
    InvalidRequest,
    SubscriptionClosed,
    SubscriptionsError,
    translating,
)
from kledger.subscriptions.model import StartPosition
from kledger.subscriptions.subscription import Subscription, SubscriptionContext, check_start
from kledger.subscriptions.visibility_filter import ALL_VISIBLE, VisibilityFilter

Result = TypeVar("Result")

AT_LATEST = StartPosition(LATEST)
SUBSCRIPTIONS_MAX = 10_000
"""The most subscriptions that one partition has, durable or not."""

_ENDED_STATES = {LedgerState.CLOSED, LedgerState.FENCED}


class PartitionSubscriptions:
    """One per open partition with subscriptions."""

    def __init__(
        self,
        ledger: ManagedLedger,
        *,
        partition_index: int,
        clock: Clock,
        timers: Timers,
        supervisor: Supervisor,
        visibility_filter: VisibilityFilter = ALL_VISIBLE,
        compute_pool: ComputePool | None = None,
        subscriptions_max: int = SUBSCRIPTIONS_MAX,
    ) -> None:
        """Begin with the cursors of the ledger, which are subscriptions without consumers."""
        self._ledger = ledger
        self._open: dict[str, Subscription] = {}
        self._context = SubscriptionContext(
            ledger=ledger,
            visibility_filter=visibility_filter,
            partition_index=partition_index,
            clock=clock,
            timers=timers,
            supervisor=supervisor,
            compute_pool=compute_pool,
            forget=partial(_forget, self._open),
        )
        self._subscriptions_max = subscriptions_max
        self._lock = asyncio.Lock()
        self._creating_name: str | None = None
        self._is_closed = ledger.state in _ENDED_STATES  # then the listener is never called
        ledger.add_listener(self._on_ledger_changed, ledger)

    def names(self) -> list[str]:
        """Return the names of the durable ones, sorted."""
        return sorted(self._ledger.cursors)

    def get(self, name: str) -> Subscription | None:
        """Return a subscription; None when there is none, or when it is still being created."""
        known = self._open.get(name)
        if known is not None or self._is_closed or name == self._creating_name:
            return known
        cursor = self._ledger.cursors.get(name)
        return None if cursor is None or cursor.is_closed else self._add(name, cursor)

    async def open(
        self,
        name: str,
        *,
        start: StartPosition = AT_LATEST,
        is_durable: bool = True,
        reads_compacted: bool = False,
    ) -> Subscription:
        """Return the subscription of a name; create it if there is none.

        Args:
            name: of the subscription, and of its durable cursor.
            start: where a new one begins; ignored for one that exists.
            is_durable: False: it is kept in memory, and deleted with its last consumer. One that
                exists must be of the same kind.
            reads_compacted: whether a new one begins with what a compaction has kept; ignored for
                one that exists.

        Raises:
            InvalidRequest: the name or start is invalid, or there are too many subscriptions.
            StorageFailed: it was not created.
            SubscriptionClosed: the partition is closed.
        """
        if not name:
            raise InvalidRequest("a subscription needs a name")
        check_start(start)
        opening = self._open_one(name, start, is_durable, reads_compacted)
        return await self._run_to_end(opening, f"open {name}")

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Delete one; its consumers are disconnected with SubscriptionClosed.

        Raises:
            SubscriptionNotFound: there is none of that name.
            ConsumerBusy: it has consumers, and no `force`.
            StorageFailed: it is as before, without consumers.
            SubscriptionClosed: the partition is closed.
        """
        await self._run_to_end(self._delete_one(name, force), f"delete {name}")

    def end(self) -> None:
        """Refuse every further call; all consumers are disconnected with SubscriptionClosed."""
        self._is_closed = True
        self._ledger.remove_listener(self._on_ledger_changed)
        for subscription in tuple(self._open.values()):
            self._context.supervisor.containment.run(subscription, subscription.end)

    async def close(self) -> None:
        """End all subscriptions and close their cursors; may be repeated."""
        self.end()
        async with self._lock:
            for subscription in tuple(self._open.values()):
                try:
                    await subscription.close()
                except SubscriptionsError:
                    continue  # records whose acknowledgement is not durable are redelivered

    # Inside

    async def _run_to_end(self, work: Coroutine[Any, Any, Result], name: str) -> Result:
        """Run work that must not stop halfway, even if the caller is cancelled."""
        supervisor = self._context.supervisor
        if self._is_closed or supervisor.is_closed:
            work.close()
            raise SubscriptionClosed(f"the subscriptions of {self._ledger.name} are closed")
        return await supervisor.finish(work, f"{name} of {self._ledger.name}")

    async def _open_one(
        self, name: str, start: StartPosition, is_durable: bool, reads_compacted: bool
    ) -> Subscription:
        async with self._lock:
            known = self.get(name)
            if known is not None and known.is_closed:
                await known.close()  # it is being closed
                known = None
            self._check_open()
            if known is None:
                if len({*self._ledger.cursors, *self._open, name}) > self._subscriptions_max:
                    raise InvalidRequest(f"there are {self._subscriptions_max} subscriptions")
                self._creating_name = name  # its cursor exists before the subscription does
                try:
                    with translating():
                        cursor = await self._cursor(name, start, is_durable, reads_compacted)
                        return self._add(name, cursor)
                finally:
                    self._creating_name = None
            if known.is_durable != is_durable:
                kind = "durable" if known.is_durable else "not durable"
                raise InvalidRequest(f"subscription {name} is there already, and {kind}")
            return known

    async def _cursor(
        self, name: str, start: StartPosition, is_durable: bool, reads_compacted: bool
    ) -> Cursor:
        position, index, size = start
        if is_durable:
            return await self._ledger.open_cursor_at(
                name,
                position,
                acknowledged=range(index),
                batch_size=size,
                reads_compacted=reads_compacted,
            )
        cursor = await self._ledger.new_non_durable_cursor(EARLIEST)
        try:
            cursor.set_reads_compacted(is_wanted=reads_compacted)
            await cursor.reset(position, acknowledged=range(index), batch_size=size)
        except LedgerError:
            with suppress(LedgerError):
                await cursor.close()
            raise
        return cursor

    async def _delete_one(self, name: str, force: bool) -> None:
        async with self._lock:
            self._check_open()
            subscription = self.get(name)
            if subscription is not None and subscription.is_closed:
                await subscription.close()  # it is being closed
                subscription = None
            if subscription is None:
                with translating():
                    await self._ledger.delete_cursor(name)
            else:
                await subscription.delete(force=force)

    def _add(self, name: str, cursor: Cursor) -> Subscription:
        subscription = self._open[name] = Subscription(name, cursor, self._context)
        return subscription

    def _on_ledger_changed(self) -> None:
        """Called whenever the managed ledger changes; most often it has only grown."""
        if self._ledger.state in _ENDED_STATES:
            self.end()
            if not self._context.supervisor.is_closed:
                unit = NamedUnit("background work", f"ending subscriptions of {self._ledger.name}")
                self._context.supervisor.spawn(self.close(), unit.unit_name, unit=unit)

    def _check_open(self) -> None:
        if self._is_closed:
            raise SubscriptionClosed(f"the subscriptions of {self._ledger.name} are closed")


def _forget(open_ones: dict[str, Subscription], subscription: Subscription) -> None:
    """Remove a closed subscription; a function, so that it does not keep the partition alive."""
    if open_ones.get(subscription.name) is subscription:
        del open_ones[subscription.name]
