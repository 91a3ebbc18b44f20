"""Append retries: an append is repeated when its group was not written.

Rule: appends of one handle that failed together are retried together, in their order, before any
new append. An append is not retried when the disk is full, as waiting does not help. If a fault
closed the handle, a retry fails: every caller gets a position or an error.
Must not know: groups, ledgers. Theory: Pulsar re-sends unacknowledged adds after a failed write.
"""

import asyncio
from typing import Protocol

from kledger.ledger.commits.committer import AppendDone
from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import LedgerError, StorageFailed
from kledger.ledger.position import Position

RETRIES_MAX = 3
"""How often one append is retried before its caller gets the error."""


class Appender(Protocol):
    """The append method of a managed ledger."""

    def append_nowait(
        self, data: Buffer, message_count: int, max_timestamp_ms: int, done: AppendDone
    ) -> Position:
        """Append; `done` gets the outcome."""
        ...


class AppendRetries:
    """The appends of one handle that wait until it has recovered from a failed write."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[AppendRetry] = []

    def add(self, append_retry: "AppendRetry") -> None:
        """Retry an append with the next `send`."""
        self._waiting.append(append_retry)

    def send(self) -> None:
        """Retry all of them; if the handle refuses appends, their callers get its error."""
        waiting, self._waiting = self._waiting, []
        for append_retry in waiting:
            append_retry.send()


class AppendRetry:
    """One call of `add_entry`, which waits for `outcome`."""

    __slots__ = (
        "_append_retries",
        "_appender",
        "_data",
        "_max_timestamp_ms",
        "_message_count",
        "_retries_left",
        "outcome",
    )

    def __init__(
        self,
        appender: Appender,
        append_retries: AppendRetries,
        data: bytes,
        message_count: int,
        max_timestamp_ms: int,
    ) -> None:
        self._appender = appender
        self._append_retries = append_retries
        self._data = data
        self._message_count = message_count
        self._max_timestamp_ms = max_timestamp_ms
        self._retries_left = RETRIES_MAX
        self.outcome: asyncio.Future[Position] = asyncio.get_running_loop().create_future()

    def send(self) -> None:
        """Append once; do nothing if the caller was cancelled between two attempts."""
        if self.outcome.done():
            return
        try:
            self._appender.append_nowait(
                self._data, self._message_count, self._max_timestamp_ms, self._append_finished
            )
        except LedgerError as error:
            self.outcome.set_exception(error)

    def _append_finished(self, position: Position, error: LedgerError | None) -> None:
        if self.outcome.done():
            return
        if error is None:
            self.outcome.set_result(position)
        elif isinstance(error, StorageFailed) and not error.full and self._retries_left:
            self._retries_left -= 1
            self._append_retries.add(self)
        else:
            self.outcome.set_exception(error)
