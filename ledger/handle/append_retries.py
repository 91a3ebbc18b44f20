"""Resending: an append that is sent again when its group was not written.

Rule: appends of one handle that failed together are sent again together, in their order, before
anything new. A full storage is not asked again: it gets no better by itself. A handle that a fault
closes refuses them: every caller gets a position or an error.
Must not know: groups, ledgers. Theory: Pulsar re-sends unacknowledged adds after a failed write.
"""

import asyncio
from typing import Protocol

from kledger.ledger.commits.committer import AppendDone
from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import LedgerError, StorageFailed
from kledger.ledger.position import Position

RETRIES_MAX = 3
"""How often one append is sent again before its caller hears of the failure."""


class Appender(Protocol):
    """What a managed ledger offers for it."""

    def append_nowait(
        self, data: Buffer, message_count: int, max_timestamp_ms: int, done: AppendDone
    ) -> Position:
        """Append; `done` tells what became of it."""
        ...


class AppendRetries:
    """The appends of one handle that wait until it has recovered from the failed write."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[AppendRetry] = []

    def add(self, append_retry: "AppendRetry") -> None:
        """Send an append again as soon as the failures were told."""
        self._waiting.append(append_retry)

    def send(self) -> None:
        """Send all of them; their callers get the error of a handle that takes none."""
        waiting, self._waiting = self._waiting, []
        for append_retry in waiting:
            append_retry.send()


class AppendRetry:
    """One call of `add_entry`; `outcome` is what it waits for."""

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
        """Append once; a caller that was cancelled between two attempts is not served any more."""
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
