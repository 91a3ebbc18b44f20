"""kledger doctor: check a stopped store and list what is damaged.

The folder is only read; with --tier, the copies of ledgers in the object store are read, too.
Exit code 0: nothing is damaged; 1: something is; 2: the folder is no store, a server uses it, or a
setting has a mistake.
"""

import argparse

from kledger.cli import EXIT_FAILURE, tier_check, usage_error
from kledger.ledger import LedgerError, StoreInUse, StoreUnusable
from kledger.ledger.inspection import Inspection, Problem, StoppedStore, inspect_folder
from kledger.setting_values import SettingError
from kledger.topics.inspection import BatchCheck
from kledger.topics.partition_name import partition_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--data", metavar="DIR", required=True, help="the folder of the store")
    tier_check.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check a folder; return the exit code."""
    tier = None
    try:
        found = inspect_folder(arguments.data, check_entry=BatchCheck())
        if arguments.tier:
            with StoppedStore(arguments.data) as store:
                tier = tier_check.check_tier(store, arguments, BatchCheck)
    except (StoreInUse, StoreUnusable, SettingError) as error:
        return usage_error(str(error))
    except LedgerError as error:
        print(f"{arguments.data}: {error}")
        return EXIT_FAILURE
    for problem in found.problems:
        print(described(problem))
    if found.torn_tail is not None:
        print(f"note: the next start cuts off the trace of a crash: {found.torn_tail}")
    print(summary(found))
    if tier is not None:
        tier.show()
    return EXIT_FAILURE if found.problems or (tier is not None and tier.problems) else 0


def described(problem: Problem) -> str:
    """Return the line of a problem: file, owner, reason."""
    where = problem.file
    if problem.position >= 0:
        where += f" at position {problem.position}"
    owners = []
    if problem.managed_ledger:
        owners.append(owner(problem.managed_ledger))
    if problem.entry_id >= 0:
        owners.append(f"entry {problem.ledger_id}:{problem.entry_id}")
    elif problem.ledger_id >= 0:
        owners.append(f"ledger {problem.ledger_id}")
    return f"{where}: {', '.join(owners)}{': ' if owners else ''}{problem.reason}"


def summary(found: Inspection) -> str:
    """Return the last line: the outcome, and how much was checked."""
    count = len(found.problems)
    outcome = "nothing is damaged" if not count else f"{count} problem{'s' if count > 1 else ''}"
    return (
        f"{outcome}: checked {found.file_count} log files with {found.group_count} groups and "
        f"{found.entry_count} entries, and {found.managed_ledger_count} managed ledgers"
    )


def owner(managed_ledger: str) -> str:
    """Return the partition that a managed ledger belongs to, or the managed ledger's name."""
    partition = partition_of(managed_ledger)
    if partition is None:
        return f"managed ledger {managed_ledger}"
    return f"partition {partition}"
