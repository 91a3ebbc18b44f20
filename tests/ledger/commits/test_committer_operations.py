"""An operation without an entry calls `done` once."""

import pytest

from kledger.ledger.commits.committer import Operation, RowsSubmitter, submitted
from kledger.ledger.errors import Fenced, LedgerError
from kledger.ledger.position import EARLIEST


def rows_submitter(results: list[LedgerError | None]) -> RowsSubmitter:
    return RowsSubmitter(results.append)


def operation(submitter: RowsSubmitter) -> Operation:
    return (submitter, EARLIEST, 0, b"", lambda position, error: None)


def test_a_confirmed_operation_is_done_without_error() -> None:
    results: list[LedgerError | None] = []
    submitter = rows_submitter(results)
    submitter.confirm(operation(submitter))
    submitter.group_confirmed()
    assert [None] == results


def test_a_failed_operation_is_done_with_its_error_once() -> None:
    results: list[LedgerError | None] = []
    submitter, error = rows_submitter(results), Fenced("fenced")
    submitter.revert()
    submitter.fail(operation(submitter), error)
    submitter.resume()
    assert [error] == results


async def test_submitted_waits_for_the_callback_and_raises_its_error() -> None:
    await submitted(lambda done: done(None))
    with pytest.raises(Fenced, match="fenced"):
        await submitted(lambda done: done(Fenced("fenced")))
