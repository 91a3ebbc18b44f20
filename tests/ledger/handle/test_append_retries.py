"""An append is retried when its group was not written."""

import pytest

from kledger.ledger.commits.committer import AppendDone
from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import Fenced, LedgerError, StorageFailed
from kledger.ledger.handle.append_retries import RETRIES_MAX, AppendRetries, AppendRetry
from kledger.ledger.position import Position
from tests.ledger.words import pos


class Appender:
    """Answers each append with the next outcome of a list; None stores it."""

    def __init__(self, *outcomes: LedgerError | None) -> None:
        self.outcomes = list(outcomes)
        self.appends: list[tuple[Buffer, int, int]] = []
        self.refusal: LedgerError | None = None

    def append_nowait(
        self, data: Buffer, message_count: int, max_timestamp_ms: int, done: AppendDone
    ) -> Position:
        if self.refusal is not None:
            raise self.refusal
        self.appends.append((data, message_count, max_timestamp_ms))
        position = Position(1, len(self.appends))
        done(position, self.outcomes.pop(0))
        return position


def failed() -> StorageFailed:
    return StorageFailed("no")


async def send(appender: Appender) -> Position:
    append_retries = AppendRetries()
    append_retries.add(append_retry := AppendRetry(appender, append_retries, b"data", 3, 99))
    for _ in range(len(appender.outcomes) or 1):
        append_retries.send()
    return await append_retry.outcome


async def test_the_outcome_is_the_position_that_was_stored() -> None:
    appender = Appender(failed(), failed(), None)
    assert pos("1:3") == await send(appender)
    assert [(b"data", 3, 99)] * 3 == appender.appends


async def test_a_storage_that_stays_broken_fails_the_append() -> None:
    appender = Appender(*[failed()] * 10)
    with pytest.raises(StorageFailed):
        await send(appender)
    assert 1 + RETRIES_MAX == len(appender.appends)


@pytest.mark.parametrize("error", [StorageFailed("no space", full=True), Fenced("fenced")])
async def test_a_full_storage_or_a_fence_is_not_retried(error: LedgerError) -> None:
    appender = Appender(error)
    with pytest.raises(type(error)):
        await send(appender)
    assert 1 == len(appender.appends)


async def test_a_refused_append_fails() -> None:
    appender = Appender()
    appender.refusal = Fenced("fenced")
    with pytest.raises(Fenced):
        await send(appender)


async def test_an_append_of_a_cancelled_caller_is_not_retried() -> None:
    appender = Appender(None)
    append_retry = AppendRetry(appender, AppendRetries(), b"data", 1, 1)
    append_retry.outcome.cancel()
    append_retry.send()
    assert [] == appender.appends
