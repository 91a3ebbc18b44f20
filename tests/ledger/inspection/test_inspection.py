"""An inspection of a whole folder: its extent, and folders that cannot be inspected."""

from pathlib import Path

import pytest

from kledger.ledger import LedgerStore, Position, StoreInUse, StoreUnusable
from kledger.ledger.inspection import inspect_folder
from tests.ledger.words import nothing_wrong


def test_whole_store(folder: Path) -> None:
    asked: list[tuple[str, Position, bytes | None]] = []

    def check(name: str, position: Position, data: bytes | None) -> None:
        asked.append((name, position, data))

    found = inspect_folder(folder, check_entry=check)
    assert ([], None, 1, 5, 2) == (
        found.problems, found.torn_tail, found.file_count, found.entry_count,
        found.managed_ledger_count,
    )  # fmt: skip
    assert [("orders", b"%d" % number) for number in range(5)] == [(a, c) for a, _, c in asked]
    assert sorted(asked) == asked


def test_a_wrong_entry_is_reported_with_its_position(folder: Path) -> None:
    def check(name: str, position: Position, data: bytes | None) -> str | None:
        return "not liked" if data == b"3" else None

    [problem] = inspect_folder(folder, check_entry=check).problems
    log = folder / "log" / "00000001.log"
    assert ("not liked", "orders", 1, str(log)) == (
        problem.reason, problem.managed_ledger, problem.entry_id, problem.file,
    )  # fmt: skip
    assert b"3" == log.read_bytes()[problem.position + 40 : problem.position + 41]


async def test_folders_that_cannot_be_inspected(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="holds no store"):
        inspect_folder(tmp_path / "none", check_entry=nothing_wrong)
    async with LedgerStore.open(tmp_path / "used"):
        with pytest.raises(StoreInUse):
            inspect_folder(tmp_path / "used", check_entry=nothing_wrong)
