"""Auto thresholds: bytes and age, the oldest first; and the other pure plans."""

import pytest

from kledger.ledger import EARLIEST, LATEST, LedgerInfo, LedgerStore, OffloadPolicies, Position
from kledger.ledger.metadata.records import OffloadContext
from kledger.ledger.offload.offload_plan import (
    first_not_offloaded,
    plan_copies,
    plan_prefix,
    plan_primary_deletions,
)
from kledger.ledger.testing import ManualClock, MemoryTier
from tests.ledger.offload.words import (
    ATTEMPT,
    change_policies,
    five,
    offloaded,
    open_position,
    policies,
)
from tests.ledger.words import pos

NOW = 1_000


def info(
    ledger_id: int, size: int = 10, closed_ms: int | None = 900, copied: int = 0
) -> LedgerInfo:
    """A ledger of 5 entries; `copied` is the time of its copy, 0 = none, -1 = an attempt."""
    offload = OffloadContext(attempt=ATTEMPT, driver="m", location={}, completed_ms=max(copied, 0))
    return LedgerInfo(
        ledger_id=ledger_id,
        entries=5 if size else 0,
        size=size,
        closed_ms=closed_ms,
        offloaded=copied > 0,
        offload=offload if copied else None,
    )


def due(*ledgers: LedgerInfo, before: Position | None = None, **thresholds: int) -> tuple[int, ...]:
    return plan_copies(ledgers, policies(None, **thresholds), now_ms=NOW, before=before)


LEDGERS = (info(1), info(2), info(3), info(4, closed_ms=None))


@pytest.mark.parametrize(
    ("threshold_bytes", "expected"),
    [
        (-1, ()), (0, (1, 2, 3)), (9, (1, 2, 3)), (10, (1, 2)), (19, (1, 2)), (20, (1,)),
        (29, (1,)), (30, ()), (1000, ()),
    ],
)  # fmt: skip
def test_auto_thresholds_by_bytes(threshold_bytes: int, expected: tuple[int, ...]) -> None:
    """The ledger in which the sum passes the threshold is copied; the open one does not count."""
    assert expected == due(*LEDGERS, threshold_bytes=threshold_bytes)


@pytest.mark.parametrize(
    ("threshold_ms", "expected"),
    [(-1, ()), (0, (1, 2, 3)), (99, (1, 2)), (100, (1, 2)), (101, (1,)), (1000, ())],
)
def test_auto_thresholds_by_age(threshold_ms: int, expected: tuple[int, ...]) -> None:
    ledgers = (info(1, closed_ms=500), info(2), info(3, closed_ms=1000), info(4, closed_ms=None))
    assert expected == due(*ledgers, threshold_ms=threshold_ms)


def test_auto_thresholds_count_copied_ledgers_and_copy_none_twice() -> None:
    ledgers = (info(1, copied=5), info(2), info(3, copied=5), info(4), info(5, closed_ms=None))
    assert (2,) == due(*ledgers, threshold_bytes=10)
    assert (2, 4) == due(*ledgers, threshold_bytes=0)


def test_auto_thresholds_leave_out_empty_ledgers_and_retry_attempts() -> None:
    assert (2,) == due(info(1, size=0), info(2, copied=-1), threshold_ms=0)


def test_auto_thresholds_stop_before_a_position() -> None:
    assert (1,) == due(*LEDGERS, threshold_bytes=0, before=pos("2:4"))
    assert (1, 2) == due(*LEDGERS, threshold_bytes=0, before=pos("2:5"))


def test_either_threshold_is_enough() -> None:
    ledgers = (info(1, closed_ms=999), info(2, closed_ms=999), info(3, closed_ms=999))
    assert (1,) == due(*ledgers, threshold_bytes=20, threshold_ms=500)
    assert (1, 2, 3) == due(*ledgers, threshold_bytes=20, threshold_ms=1)


def test_a_prefix_ends_before_the_ledger_of_the_position() -> None:
    for text, expected in (("1:0", ()), ("2:0", (1,)), ("3:4", (1, 2)), ("4:0", (1, 2, 3))):
        assert expected == plan_prefix(LEDGERS, pos(text))
    assert () == plan_prefix(LEDGERS, EARLIEST)
    assert (1, 2, 3) == plan_prefix(LEDGERS, LATEST)
    assert (1,) == plan_prefix(LEDGERS, LATEST, before=pos("2:0"))


def test_the_first_position_without_a_copy() -> None:
    last = pos("4:1")
    assert pos("1:0") == first_not_offloaded(LEDGERS, last)
    assert pos("2:0") == first_not_offloaded((info(1, copied=5), info(2)), last)
    assert pos("4:0") == first_not_offloaded((info(1, copied=5), info(4, closed_ms=None)), last)
    assert pos("4:0") == first_not_offloaded((info(4, size=0, closed_ms=None),), last)
    assert pos("4:2") == first_not_offloaded((info(4, copied=5),), last)


@pytest.mark.parametrize(
    ("lag_ms", "expected"),
    [(None, ()), (-1, ()), (0, (1, 2)), (99, (1, 2)), (100, (1,)), (499, (1,)), (500, ())],
)
def test_deletion_lag_of_completed_copies(lag_ms: int | None, expected: tuple[int, ...]) -> None:
    ledgers = (info(1, copied=500), info(2, copied=900), info(3, copied=1000), info(4, copied=-1))
    policies = OffloadPolicies(deletion_lag_ms=lag_ms)
    assert expected == plan_primary_deletions(ledgers, policies, now_ms=NOW)


async def test_auto_thresholds_copy_the_oldest_first(
    store: LedgerStore, tier: MemoryTier, clock: ManualClock
) -> None:
    ml = await five(store, tier)
    assert Position(ml.ledgers[0].ledger_id, 0) == await ml.offload_due(), "both are off"
    change_policies(ml, threshold_ms=1_000)
    await ml.offload_due()
    assert [False, False, False] == offloaded(ml)
    clock.advance(1_000)
    assert open_position(ml) == await ml.offload_due()
    assert [info.ledger_id for info in ml.ledgers[:2]] == [each for each, _ in tier.copies]
    assert [True, True, False] == offloaded(ml)
