"""Every way in which a log can end, and what is decided about it."""

import pytest

from kledger.ledger.engine.log.recovery_plan import (
    KeepTail,
    LaterCommit,
    Refuse,
    TailDamage,
    TruncateTail,
    Watermark,
    plan_recovery,
)

MARK = Watermark(2, 1000, 10)
END = Watermark(2, 1500, 14)
TORN = TailDamage(2, 1500, "torn")


def test_log_without_damage_is_kept() -> None:
    assert KeepTail() == plan_recovery(
        watermark=MARK, end=END, damage=None, later_commits=[], files=[2]
    )


@pytest.mark.parametrize(
    ("later", "plan"),
    [
        ([], TruncateTail),
        ([LaterCommit(2, 1700, 15, 14)], TruncateTail),
        ([LaterCommit(2, 1700, 16, 14), LaterCommit(3, 0, 17, 0)], TruncateTail),
        ([LaterCommit(2, 1700, 16, 15)], Refuse),
        ([LaterCommit(2, 1700, 16, 14), LaterCommit(3, 90, 20, 19)], Refuse),
    ],
)
def test_damage_is_torn_unless_a_later_commit_knows_of_a_sync(
    later: list[LaterCommit], plan: type
) -> None:
    decided = plan_recovery(watermark=MARK, end=END, damage=TORN, later_commits=later, files=[2, 3])
    assert isinstance(decided, plan)
    assert not isinstance(decided, KeepTail)
    assert (2, 1500) == (decided.file, decided.position)


def test_cut_removes_all_later_files() -> None:
    decided = plan_recovery(
        watermark=MARK, end=END, damage=TORN, later_commits=[], files=[1, 2, 3, 4]
    )
    assert TruncateTail(2, 1500, (3, 4), "torn") == decided


def test_refusal_names_the_commit_that_proves_the_sync() -> None:
    decided = plan_recovery(
        watermark=MARK,
        end=END,
        damage=TORN,
        later_commits=[LaterCommit(3, 90, 20, 15)],
        files=[2, 3],
    )
    expected = "torn; group 15 was durable when group 20 was written at position 90 of file 3"
    assert Refuse(2, 1500, expected) == decided


@pytest.mark.parametrize(
    ("damage", "files"),
    [
        (TailDamage(2, 999, "the file ends there"), [2]),
        (TailDamage(2, 0, "the file is missing"), []),
        (TailDamage(2, 1000, "the file is missing"), [3]),
        (TailDamage(1, 5000, "anything"), [1, 2]),
    ],
)
def test_log_that_does_not_reach_the_watermark_is_corrupt(
    damage: TailDamage, files: list[int]
) -> None:
    decided = plan_recovery(watermark=MARK, end=MARK, damage=damage, later_commits=[], files=files)
    assert Refuse(damage.file, damage.position, damage.reason) == decided


def test_index_without_watermark_and_log_without_its_beginning_is_corrupt() -> None:
    """A user removed the index of a folder whose first log files were removed before."""
    new = Watermark(1, 0, 0)
    damage = TailDamage(1, 0, "the file is missing")
    decided = plan_recovery(watermark=new, end=new, damage=damage, later_commits=[], files=[4, 5])
    assert Refuse(1, 0, "the file is missing") == decided
