"""The way to entries is the cursorless read: nothing else of the ledger hands them to a façade."""

import ast
import inspect
from pathlib import PurePosixPath

from kledger.ledger import LedgerStore, ManagedLedger
from tests.tidy.sources import expect_none, parsed, violations

READS = {"read_cached", "read_entries", "read_entry"}
"""What topics/ may call; the rooms above see partitions, not ledgers."""
SEARCHES = {"find_newest_before", "find_newest_matching"}
LEDGERS = {"managed_ledger"}
"""The way from a partition to cursors, for rooms that keep places by them; a fetch has none."""
CURSORS = {"open_cursor", "open_cursor_at", "new_non_durable_cursor", "delete_cursor", "cursors"}
SERVING = ("gateway", "offsets", "topics")


def handing_out_entries(face: type) -> set[str]:
    """Return the public methods of a class that have to do with entries."""
    found = set()
    for name, method in inspect.getmembers(face, inspect.isfunction):
        notes = " ".join(map(str, inspect.get_annotations(method).values()))
        if not name.startswith("_") and "Entry" in notes:
            found.add(name)
    return found


def other_ways(path: PurePosixPath, text: str) -> list[str]:
    """Find attributes by which a room would come to entries in another way."""
    banned = SEARCHES | CURSORS
    if path.parts[0] != "topics":
        banned = banned | READS | LEDGERS
    return [
        f"line {node.lineno} uses {node.attr}"
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Attribute) and node.attr in banned
    ]


def test_the_ledger_hands_out_entries_by_these_names_only() -> None:
    """A new method that does must be thought about here."""
    assert handing_out_entries(ManagedLedger) <= READS | SEARCHES
    assert handing_out_entries(ManagedLedger) >= READS
    assert set() == handing_out_entries(LedgerStore)


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
