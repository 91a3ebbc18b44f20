"""Operations: what goes through the committer, and who learns what became of it.

Rule: an operation is told to its submitter exactly once, as confirmed or as failed, in the order of
submission over the whole store.
Must not know: groups, threads, managed ledgers.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias

from kledger.ledger.engine.base import Buffer, Row
from kledger.ledger.errors import LedgerError
from kledger.ledger.position import Position
from kledger.runtime.containment import FaultUnit, unit_of

__all__ = ["AppendDone", "Operation", "Row", "RowsDone", "RowsSubmitter", "Submitter", "submitted"]

AppendDone: TypeAlias = Callable[[Position, LedgerError | None], None]
RowsDone: TypeAlias = Callable[[LedgerError | None], None]
Operation: TypeAlias = tuple["Submitter", Position, int, Buffer, AppendDone]
"""Who submitted it, and four values that only the submitter understands: a plain tuple, as one is
made for every append."""


class Submitter(FaultUnit, Protocol):
    """Who learns what became of operations. `revert` may come more than once for one failure.

    A fault of one of these methods closes the submitter; the others are told all the same.
    """

    def confirm(self, operation: Operation) -> None:
        """The operation is as durable as the store promises."""
        ...

    def group_confirmed(self) -> None:
        """All operations of a group were confirmed, at least one of them of this submitter."""
        ...

    def revert(self) -> None:
        """Nothing unconfirmed of this submitter exists; take nothing new until `resume`."""
        ...

    def fail(self, operation: Operation, error: LedgerError) -> None:
        """Tell the caller of one operation; called in the order of submission, after `revert`."""
        ...

    def resume(self) -> None:
        """Every failure was told; go on."""
        ...


class RowsSubmitter:
    """The submitter of one operation without an entry; with no rows at all it is a barrier."""

    __slots__ = ("_done",)
    unit_kind = "completion"

    def __init__(self, done: RowsDone) -> None:
        self._done = done

    @property
    def unit_name(self) -> str:
        """The callback, for the log."""
        return unit_of(self._done, self.unit_kind).unit_name

    def close_after_fault(self, error: Exception) -> None:
        """Nothing to close: rows have no state."""

    def confirm(self, operation: Operation) -> None:
        """Tell the caller."""
        self._done(None)

    def group_confirmed(self) -> None:
        """Nothing to do: the caller was told."""

    def revert(self) -> None:
        """Nothing to do: rows have no state."""

    def fail(self, operation: Operation, error: LedgerError) -> None:
        """Tell the caller."""
        self._done(error)

    def resume(self) -> None:
        """Nothing to do."""


async def submitted(submit: Callable[[RowsDone], None]) -> None:
    """Submit something and wait until it is durable.

    Args:
        submit: submits it, with the callback that it is given.

    Raises:
        LedgerError: what became of it instead.
    """
    outcome = asyncio.get_running_loop().create_future()

    def resolve(error: LedgerError | None) -> None:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(error)

    submit(resolve)
    await outcome


def ignore_outcome(error: LedgerError | None) -> None:
    """Be the `done` of what nobody waits for: what was not stored is wanted again later."""
