"""kledger doctor: check a stopped store and say what is damaged.

Exit code 0: nothing is damaged; 1: something is; 2: the folder is none of ours, or in use. The
folder is only read.
"""

import argparse

from batches.errors import BatchError, CorruptBatch
from batches.header import read_header, verify_checksum
from kledger.cli import EXIT_FAILURE, mistake
from ledger import LedgerError, Position, StoreInUse, StoreUnusable
from ledger.inspection import Inspection, Problem, inspect_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--data", metavar="DIR", required=True, help="the folder of the store")


def run(arguments: argparse.Namespace) -> int:
    """Check a folder; return the exit code."""
    try:
        found = inspect_folder(arguments.data, check_entry=BatchCheck())
    except (StoreInUse, StoreUnusable) as error:
        return mistake(str(error))
    except LedgerError as error:
        print(f"{arguments.data}: {error}")
        return EXIT_FAILURE
    for problem in found.problems:
        print(described(problem))
    if found.torn_tail is not None:
        print(f"note: the next start cuts off the trace of a crash: {found.torn_tail}")
    print(summary(found))
    return EXIT_FAILURE if found.problems else 0


def described(problem: Problem) -> str:
    """Say one problem in one line: where, whose, what."""
    where = problem.file
    if problem.position >= 0:
        where += f" at position {problem.position}"
    whose = []
    if problem.managed_ledger:
        whose.append(partition_of(problem.managed_ledger))
    if problem.entry_id >= 0:
        whose.append(f"entry {problem.ledger_id}:{problem.entry_id}")
    elif problem.ledger_id >= 0:
        whose.append(f"ledger {problem.ledger_id}")
    return f"{where}: {', '.join(whose)}{': ' if whose else ''}{problem.reason}"


def summary(found: Inspection) -> str:
    """Say what was looked at, and how it ended."""
    count = len(found.problems)
    outcome = "nothing is damaged" if not count else f"{count} problem{'s' if count > 1 else ''}"
    return (
        f"{outcome}: looked at {found.file_count} log files with {found.group_count} groups and "
        f"{found.entry_count} entries, and {found.managed_ledger_count} managed ledgers"
    )


def partition_of(managed_ledger: str) -> str:
    """Return topic-partition for the managed ledger of one; any other name as it is."""
    partition, slash, _ = managed_ledger.rpartition("/")
    return f"partition {partition}" if slash else f"managed ledger {managed_ledger}"


class BatchCheck:
    """Checks entries as stored record batches: their own checksum, and offsets without a gap."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[Position, int]] = {}

    def __call__(self, managed_ledger: str, position: Position, data: bytes) -> str | None:
        """Return what is wrong with an entry."""
        try:
            header = read_header(data)
            if header.size != len(data):
                raise CorruptBatch(f"{header.size} bytes in an entry of {len(data)}")
            verify_checksum(data, header)
        except BatchError as error:
            self._ends.pop(managed_ledger, None)
            return f"the record batch is damaged: {error}"
        before, expected = self._ends.get(managed_ledger, (position, header.base_offset))
        self._ends[managed_ledger] = position, header.last_offset + 1
        if position.entry_id not in (0, before.entry_id + 1):
            return None  # the entry before could not be read, which was told already
        if header.base_offset != expected:
            return f"the record batch begins at offset {header.base_offset}, expected {expected}"
        return None
