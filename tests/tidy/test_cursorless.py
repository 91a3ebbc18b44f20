"""Packages above the ledger read entries without a cursor, by a few named methods only."""

import ast
import inspect
from pathlib import PurePosixPath

from kledger.ledger import LedgerStore, ManagedLedger
from tests.tidy.sources import expect_none, nodes_of, violations

READS = {"read_cached", "read_entries", "read_entry", "read_in_chunks", "read_resident"}
"""What topics/ may call; higher packages see partitions, not ledgers."""
SEARCHES = {"find_newest_before", "find_newest_matching"}
LEDGERS = {"managed_ledger"}
"""Gives packages that use cursors access to them; a fetch uses none."""
CURSORS = {"open_cursor", "open_cursor_at", "new_non_durable_cursor", "delete_cursor", "cursors"}
SERVING = ("gateway", "offsets", "topics")


def entry_methods(ledger_class: type) -> set[str]:
    """Return the public methods of a class whose signatures mention entries."""
    found = set()
    for name, method in inspect.getmembers(ledger_class, inspect.isfunction):
        annotations = " ".join(map(str, inspect.get_annotations(method).values()))
        if not name.startswith("_") and "Entry" in annotations:
            found.add(name)
    return found


def other_ways(path: PurePosixPath, text: str) -> list[str]:
    """Find attributes that give a package other access to entries."""
    banned = SEARCHES | CURSORS
    if path.parts[0] != "topics":
        banned = banned | READS | LEDGERS
    return [
        f"line {node.lineno} uses {node.attr}"
        for node in nodes_of(text)
        if isinstance(node, ast.Attribute) and node.attr in banned
    ]


def test_entries_are_read_by_these_methods_only() -> None:
    """A new method of this kind must be added here deliberately."""
    assert entry_methods(ManagedLedger) <= READS | SEARCHES
    assert entry_methods(ManagedLedger) >= READS
    assert set() == entry_methods(LedgerStore)


def test_a_fetch_reads_without_a_cursor() -> None:
    expect_none(violations(other_ways, *SERVING))


def test_planted_cursor_is_found() -> None:
    planted = "async def f(self):\n    await self._ledger.open_cursor('c')\n"
    assert ["line 2 uses open_cursor"] == other_ways(PurePosixPath("topics/x.py"), planted)


def test_planted_read_above_the_topics_is_found() -> None:
    planted = "async def f(log):\n    return await log._ledger.read_entries(0, 1)\n"
    assert ["line 2 uses read_entries"] == other_ways(PurePosixPath("gateway/x.py"), planted)
    assert [] == other_ways(PurePosixPath("topics/x.py"), planted)


def test_planted_way_to_the_ledger_is_found() -> None:
    planted = "def f(log):\n    return log.managed_ledger\n"
    assert ["line 2 uses managed_ledger"] == other_ways(PurePosixPath("gateway/x.py"), planted)
