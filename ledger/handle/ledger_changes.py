"""Ledger changes: changes of the closed ledgers of one managed ledger, one after the other.

Rule: a change is planned on the durable list while no other one is under way, so two never change
one ledger. A rollover does not wait for them, as it changes the open ledger only. A change that was
begun is not cancelled with its caller.
Must not know: why ledgers change; its managed ledger, but for the time of a call.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from kledger.ledger.commits.committer import RowsDone, submitted
from kledger.ledger.engine.base import Row
from kledger.ledger.metadata.ledger_list_state import (
    LedgerInfo,
    LedgerListState,
    MetadataChange,
)
from kledger.ledger.metadata.records import ManagedLedgerRecord
from kledger.runtime.tasks import Supervisor


class SubmitChange(Protocol):
    """Submits a change of the metadata together with other rows; raises Fenced."""

    def __call__(
        self, change: MetadataChange, done: RowsDone, more_rows: Iterable[Row] = (), /
    ) -> None:
        """Begin to write."""
        ...


class MetadataChanges(NamedTuple):
    """How the metadata of a managed ledger are changed.

    Attributes:
        head: returns the newest metadata, durable or not.
        submit: replaces them.
    """

    head: Callable[[], ManagedLedgerRecord]
    submit: SubmitChange


SelectLedgers = Callable[[tuple[LedgerInfo, ...]], tuple[int, ...]]
"""Returns the ids of some ledgers of a list."""

PlanChange = Callable[[ManagedLedgerRecord, LedgerListState], MetadataChange | None]
"""Returns the change that follows the newest metadata, None if there is nothing to change."""


class LedgerChanges:
    """The changes of the closed ledgers of one managed ledger."""

    def __init__(
        self,
        state: LedgerListState,
        *,
        check: Callable[[], None],
        supervisor: Supervisor,
        shown_as: str,
    ) -> None:
        """Make one.

        Args:
            state: the durable list.
            check: raises when the handle must not change anything any more.
            supervisor: of the changes.
            shown_as: name of the managed ledger.
        """
        self._state = state
        self._check = check
        self._supervisor = supervisor
        self._shown_as = shown_as
        self._lock = asyncio.Lock()

    async def make(self, metadata: MetadataChanges, plan: PlanChange) -> MetadataChange | None:
        """Make a change durable; return it, or None if there was nothing to change.

        Raises:
            AlreadyClosed, Fenced, StorageFailed: nothing has changed.
        """
        self._check()
        # If it were cancelled halfway, the next one would plan with a list that is about to change.
        return await self._supervisor.finish(
            self._make(metadata, plan), f"change ledgers of {self._shown_as}"
        )

    async def settle(self) -> None:
        """Wait for the change that is under way."""
        async with self._lock:
            pass

    async def _make(self, metadata: MetadataChanges, plan: PlanChange) -> MetadataChange | None:
        async with self._lock:
            self._check()
            change = plan(metadata.head(), self._state)
            if change is not None:
                await submitted(lambda done: metadata.submit(change, done))
            return change
