"""What retention deletes: a matrix against a plain implementation of the rule."""

from collections.abc import Sequence
from itertools import product

import pytest

from kledger.ledger.metadata.ledger_list_state import LedgerInfo
from kledger.ledger.metadata.retention_plan import plan_trim, plan_trim_before, plan_truncate
from tests.ledger.words import pos


def infos(*sizes: int, closed_ms: Sequence[int] | None = None) -> list[LedgerInfo]:
    """Make ledgers 1, 2, ... with 10 entries, closed at their id, the last one open."""
    return [
        LedgerInfo(
            ledger_id=index,
            entries=10,
            size=size,
            closed_ms=None
            if index == len(sizes)
            else (closed_ms[index - 1] if closed_ms else index),
        )
        for index, size in enumerate(sizes, 1)
    ]


def by_the_rule(
    ledgers: Sequence[LedgerInfo], now_ms: int, retention_ms: int, retention_bytes: int
) -> tuple[int, ...]:
    total = sum(info.size for info in ledgers)
    removed: list[LedgerInfo] = []
    for info in ledgers[:-1]:
        assert info.closed_ms is not None
        with_this = sum(each.size for each in removed) + info.size
        expired = retention_ms >= 0 and now_ms - info.closed_ms > retention_ms
        over_quota = retention_bytes >= 0 and total - with_this >= retention_bytes
        if not expired and not over_quota:
            break
        removed.append(info)
    return tuple(info.ledger_id for info in removed)


def test_every_combination_follows_the_rule() -> None:
    shapes = [infos(*sizes) for sizes in product((0, 10, 25), repeat=4)] + [infos(5), []]
    limits = [-1, 0, 1, 2, 10, 25, 35, 45, 60, 100]
    for ledgers, time, size, now in product(shapes, limits, limits, (1, 3, 12)):
        assert by_the_rule(ledgers, now, time, size) == plan_trim(
            ledgers, now_ms=now, retention_ms=time, retention_bytes=size
        ), (ledgers, time, size, now)


@pytest.mark.parametrize(
    ("now_ms", "expected"), [(1000, ()), (1001, (1,)), (1002, (1, 2)), (9000, (1, 2))]
)
def test_time_is_compared_strictly(now_ms: int, expected: tuple[int, ...]) -> None:
    ledgers = infos(10, 10, 10, closed_ms=[0, 1])
    assert expected == plan_trim(ledgers, now_ms=now_ms, retention_ms=1000, retention_bytes=-1)


@pytest.mark.parametrize(("size", "expected"), [(21, ()), (20, (1,)), (11, (1,)), (10, (1, 2))])
def test_size_is_not_compared_strictly(size: int, expected: tuple[int, ...]) -> None:
    assert expected == plan_trim(infos(10, 10, 10), now_ms=5, retention_ms=-1, retention_bytes=size)


def test_no_limits_keep_for_ever() -> None:
    assert () == plan_trim(infos(10, 10, 10), now_ms=1 << 60, retention_ms=-1, retention_bytes=-1)


def test_size_zero_deletes_at_once_whatever_the_time() -> None:
    assert (1, 2) == plan_trim(infos(10, 10, 10), now_ms=0, retention_ms=1 << 40, retention_bytes=0)


def test_deletion_stops_at_the_first_that_must_stay() -> None:
    """Non-contiguous deletion was a bug upstream (#20898)."""
    ledgers = infos(10, 10, 10, 10, closed_ms=[0, 900, 0])
    assert (1,) == plan_trim(ledgers, now_ms=1000, retention_ms=500, retention_bytes=-1)


def test_truncate_takes_all_but_the_last() -> None:
    assert (1, 2) == plan_truncate(infos(10, 10, 10))
    assert () == plan_truncate(infos(10))
    assert () == plan_truncate([])


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("1:0", ()),
        ("1:9", ()),
        ("1:10", (1,)),
        ("2:0", (1,)),
        ("2:9", (1,)),
        ("3:0", (1, 2)),
        ("9:0", (1, 2)),
    ],
)
def test_trim_before_deletes_whole_ledgers(position: str, expected: tuple[int, ...]) -> None:
    assert expected == plan_trim_before(infos(10, 10, 10), pos(position))


@pytest.mark.parametrize(
    ("slowest", "removed"),
    [
        (None, (1, 2, 3)),
        ("1:-1", ()),
        ("1:8", ()),
        ("1:9", (1,)),
        ("2:-1", (1,)),
        ("2:9", (1, 2)),
        ("3:4", (1, 2)),
        ("4:9", (1, 2, 3)),
    ],
)
def test_unacknowledged_entries_of_the_slowest_cursor_stay(
    slowest: str | None, removed: tuple[int, ...]
) -> None:
    ledgers = infos(5, 5, 5, 5)
    position = None if slowest is None else pos(slowest)
    assert removed == plan_truncate(ledgers, position)
    assert removed == plan_trim(
        ledgers, now_ms=0, retention_ms=-1, retention_bytes=0, slowest=position
    )
    assert (1, 2) == plan_trim_before(ledgers, pos("3:0"))
