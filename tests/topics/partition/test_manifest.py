"""The manifest: which ledgers it lists, and its fingerprint; test_offloading has its contents."""

from uuid import UUID

import pytest

from kledger.ledger import LedgerInfo, OffloadContext
from kledger.topics.partition.manifest import fingerprint, listed

HERE, THERE = {"url": "s3://a", "folder": "a", "region": "x"}, {"url": "s3://b", "folder": "a"}
RENAMED = {"url": "s3://a", "folder": "a", "endpoint": "other"}


def ledger(
    ledger_id: int,
    location: dict[str, str] | None = None,
    *,
    entries: int = 2,
    attempt: int = 1,
    is_open: bool = False,
    is_complete: bool = True,
) -> LedgerInfo:
    offload = None
    if location is not None:
        offload = OffloadContext(
            attempt=UUID(int=attempt),
            driver="memory",
            location=location,
            completed_ms=5 if is_complete else 0,
        )
    return LedgerInfo(
        ledger_id=ledger_id,
        entries=entries,
        size=10,
        closed_ms=None if is_open else 7,
        offloaded=location is not None and is_complete,
        offload=offload,
    )


@pytest.mark.parametrize(
    ("ledgers", "expected"),
    [
        ([], []),
        ([ledger(1, is_open=True)], []),
        ([ledger(1, HERE), ledger(2, HERE), ledger(3, is_open=True)], [1, 2]),
        ([ledger(1, HERE), ledger(2), ledger(3, HERE)], [1]),
        ([ledger(1, HERE), ledger(2, HERE, is_complete=False)], [1]),
        ([ledger(1, HERE), ledger(2, entries=0), ledger(3, HERE)], [1, 3]),
        ([ledger(1, THERE), ledger(2, HERE), ledger(3, HERE)], [2, 3]),
        ([ledger(1, HERE), ledger(2, THERE), ledger(3, HERE)], [3]),
        ([ledger(1, HERE), ledger(2, THERE)], []),
        ([ledger(1, RENAMED), ledger(2, HERE)], [1, 2]),
    ],
)
def test_ledgers_are_listed_without_a_gap(ledgers: list[LedgerInfo], expected: list[int]) -> None:
    assert expected == [each.ledger_id for each in listed(ledgers, HERE)]


def test_fingerprints_differ_by_ledgers_and_copies() -> None:
    lists = [
        [], [ledger(1, HERE)], [ledger(2, HERE)], [ledger(1, HERE, attempt=2)],
        [ledger(1, HERE), ledger(2, HERE)], [ledger(1, HERE), ledger(2, HERE), ledger(3, HERE)],
    ]  # fmt: skip
    assert len(lists) == len({fingerprint(each) for each in lists})
    assert fingerprint([ledger(1, HERE)]) == fingerprint([ledger(1, HERE)])
