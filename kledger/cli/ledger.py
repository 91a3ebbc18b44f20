"""kledger ledger: inspect the managed ledgers of a stopped store, export what is readable.

The folder is only read: what a start would cut off or rebuild is reported and stays the same.
If the index is lost or damaged, everything readable comes from the log alone.

Exit code 0: done, nothing is damaged; 1: something is damaged, or missing in an export;
2: a mistake of the caller: no such name, no store, a store in use.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import UUID

from kledger.cli import EXIT_FAILURE, add_verbs, failure, ledger_dump, tier_check, usage_error
from kledger.cli.doctor import described
from kledger.cli.ledger_dump import FORMATS, ExportRequest, PositionOrOffset
from kledger.cli.ledger_text import details, listed
from kledger.cli.plain_text import table
from kledger.cli.tier_entries import TierEntries
from kledger.ledger import LedgerError, StoreInUse, StoreUnusable
from kledger.ledger.inspection import Problem, StoppedStore, StoredManagedLedger
from kledger.setting_values import SettingError
from kledger.topics.inspection import BatchCheck, StoredTopics
from kledger.topics.partition_name import PartitionName, partition_of

_VERBS = {
    "list": "list all managed ledgers, one a line",
    "show": "show one managed ledger with all its ledgers",
    "verify": "read every entry and check its checksums and records",
    "dump": "export what is readable",
}
_EXIT_CODES = "exit code 0: nothing is damaged; 1: something is; 2: a mistake of the caller"


class UnknownName(Exception):
    """There is no such managed ledger, or the name matches several."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their flags."""
    added = add_verbs(parser, _VERBS, _EXIT_CODES)
    for verb, each in added.items():
        each.add_argument("--data", metavar="DIR", required=True, help="the folder of the store")
        if verb != "dump":
            each.add_argument("--json", action="store_true", help="print one JSON document")
        if verb != "verify":
            tier_check.add_arguments(each, "read entries that only the object store has, too")
    names = "a name of `ledger list`, or TOPIC-PARTITION"
    added["show"].add_argument("name", metavar="NAME", help=names)
    added["verify"].add_argument(
        "name", metavar="NAME", nargs="?", help=f"{names}; without it, all"
    )
    tier_check.add_arguments(added["verify"])
    dump = added["dump"]
    dump.add_argument("name", metavar="NAME", help=names)
    position = "a position LEDGER:ENTRY, or an offset of a partition"
    dump.add_argument(
        "--from", metavar="POSITION", dest="start", type=PositionOrOffset.parse,
        help=f"begin at {position} (default: the first entry, of a partition the log start)",
    )  # fmt: skip
    dump.add_argument("--to", metavar="POSITION", dest="end", type=PositionOrOffset.parse,
                      help=f"end after {position} (default: the last entry)")  # fmt: skip
    dump.add_argument(
        "--limit", metavar="N", type=_count, help="at most N lines of text, or entries"
    )
    dump.add_argument("--output", metavar="DIR", type=Path, help="write files into this folder")
    dump.add_argument(
        "--format", choices=FORMATS, default="text",
        help="text: a line for each record of a partition, or each entry of any other ledger, to "
        "standard output without --output; raw: a file with the bytes of each entry; kafka: a "
        "folder TOPIC-PARTITION with segments and indexes of Apache Kafka, in whole batches",
    )  # fmt: skip
    dump.add_argument(
        "--as", metavar="TOPIC-PARTITION", dest="partition", type=_partition,
        help="read the entries as batches of that partition, for a ledger without its name",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Open the store and do one verb; return the exit code."""
    verbs: dict[str, Callable[[StoppedStore, argparse.Namespace], int]] = {
        "list": list_all, "show": show, "verify": verify, "dump": dump,
    }  # fmt: skip
    try:
        with (
            StoppedStore(arguments.data) as store,
            TierEntries.given(arguments) or nullcontext() as tier,
        ):
            store.read_tier = None if tier is None else tier.read
            code = verbs[arguments.verb](store, arguments)
            sys.stdout.flush()
            return code
    except (StoreInUse, StoreUnusable, UnknownName, SettingError) as error:
        return usage_error(str(error))
    except LedgerError as error:
        return failure(str(error))
    except BrokenPipeError:  # the reader of the pipe, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def list_all(store: StoppedStore, arguments: argparse.Namespace) -> int:
    """List every managed ledger."""
    topics = StoredTopics(store)
    found = [listed(store, topics, each) for each in store.managed_ledgers()]
    if arguments.json:
        return _as_json(store, topics, {"managed_ledgers": found})
    columns = {
        "name": "NAME", "partition": "PARTITION", "state": "STATE", "ledger_count": "LEDGERS",
        "entries": "ENTRIES", "bytes": "BYTES", "first_position": "FIRST", "last_position": "LAST",
        "log_start_offset": "LOG START", "log_end_offset": "LOG END",
        "property_count": "PROPERTIES",
    }  # fmt: skip
    _print_lines(table(list(columns.values()), [[each[key] for key in columns] for each in found]))
    return _report_damages(store, topics, store.damages)


def show(store: StoppedStore, arguments: argparse.Namespace) -> int:
    """Show one managed ledger with all its ledgers."""
    topics = StoredTopics(store)
    stored = find(store, topics, arguments)
    fields = details(store, topics, stored)
    if arguments.json:
        return _as_json(store, topics, fields, stored)
    ledgers = fields.pop("ledgers")
    properties = fields.pop("properties")
    _print_lines(f"{key.replace('_', ' ')}: {_plain(value)}" for key, value in fields.items())
    _print_lines(f"property {json.dumps(key)}: {json.dumps(properties[key])}" for key in properties)
    headings = ["LEDGER", "ENTRIES", "BYTES", "CLOSED", "NEWEST", "LOG FILES"]
    rows = [
        [each["ledger_id"], each["entries"], each["bytes"], each["closed"], each["newest"],
         " ".join(Path(path).name for path in each["log_files"])]
        for each in ledgers
    ]  # fmt: skip
    _print_lines(table(headings, rows))
    return _report_damages(store, topics, _concerning(store, stored))


def verify(store: StoppedStore, arguments: argparse.Namespace) -> int:
    """Read every entry of one managed ledger, or of all."""
    topics = StoredTopics(store)
    stored = find(store, topics, arguments) if arguments.name is not None else None
    found = store.verify(stored, BatchCheck())
    problems = [*map(described, found.problems), *topics.problems]
    tier = None
    if arguments.tier:
        name = None if stored is None else stored.name
        tier = tier_check.check_tier(store, arguments, BatchCheck, name)
    is_damaged = bool(problems) or (tier is not None and bool(tier.problems))
    if arguments.json:
        fields = {
            "managed_ledgers": found.managed_ledger_count, "entries": found.entry_count,
            "bytes": found.entry_bytes, "torn_tail": store.torn_tail,
            "problems": [*map(_problem, found.problems), *map(_row_problem, topics.problems)],
            "tier": None if tier is None else asdict(tier),
        }  # fmt: skip
        print(json.dumps(fields, indent=2))
        return EXIT_FAILURE if is_damaged else 0
    _print_lines(problems)
    if store.torn_tail is not None:
        print(f"note: the next start cuts off the trace of a crash: {store.torn_tail}")
    count = len(problems)
    outcome = "nothing is damaged" if not count else f"{count} problem{'s' if count > 1 else ''}"
    print(
        f"{outcome}: read {found.entry_count} entries with {found.entry_bytes} bytes of "
        f"{found.managed_ledger_count} managed ledgers"
    )
    if tier is not None:
        tier.show()
    return EXIT_FAILURE if is_damaged else 0


def dump(store: StoppedStore, arguments: argparse.Namespace) -> int:
    """Export what is readable of one managed ledger."""
    topics = StoredTopics(store)
    stored = find(store, topics, arguments)
    request = ExportRequest(
        stored=stored, partition=arguments.partition or partition_of(stored.name),
        start=arguments.start, end=arguments.end, limit=arguments.limit, output=arguments.output,
        format=arguments.format,
    )  # fmt: skip
    output = arguments.output
    if output is not None and output.resolve().is_relative_to(Path(arguments.data).resolve()):
        return usage_error(f"--output {output} is inside the folder of the store")
    code = _report_damages(store, topics, _concerning(store, stored))
    try:
        left_out = ledger_dump.dump(store, topics, request, _report)
    except ledger_dump.CannotDump as error:
        return usage_error(str(error))
    except BrokenPipeError:
        raise
    except OSError as error:
        return failure(f"the export cannot be written: {error}")
    return EXIT_FAILURE if left_out else code


def find(
    store: StoppedStore, topics: StoredTopics, arguments: argparse.Namespace
) -> StoredManagedLedger:
    """Find a managed ledger by its name, or by its partition.

    Raises:
        UnknownName: there is none, or deleted topics of that name have left several.
    """
    name: str = arguments.name
    if (stored := store.find(name)) is not None:
        return stored
    partitions: list[tuple[str, PartitionName]] = []
    for each in store.names():
        partition = partition_of(each)
        if partition is not None and str(partition) == name:
            partitions.append((each, partition))
    existing = [pair for pair in partitions if topics.has(pair[1])]
    names = [each for each, _ in (existing or partitions)]
    how = f"list them with: kledger ledger list --data {arguments.data}"
    if len(names) > 1:
        raise UnknownName(f"{name} matches {', '.join(names)}: choose one; {how}")
    found = store.find(names[0]) if names else None
    if found is None:
        raise UnknownName(f"there is no managed ledger {name!r} in {arguments.data}; {how}")
    return found


def _concerning(store: StoppedStore, stored: StoredManagedLedger) -> list[Problem]:
    """Return the damages of the folder that can concern a managed ledger."""
    own = {each.ledger_id for each in stored.ledgers} | {-1}
    return [each for each in store.damages if each.ledger_id in own]


def _report_damages(store: StoppedStore, topics: StoredTopics, damages: Iterable[Problem]) -> int:
    """Print the damages of the folder to standard error; return the exit code for them."""
    problems = [*map(described, damages), *topics.problems]
    for problem in problems:
        _report(f"damaged: {problem}")
    if store.torn_tail is not None:
        _report(f"note: the next start cuts off the trace of a crash: {store.torn_tail}")
    return EXIT_FAILURE if problems else 0


def _as_json(
    store: StoppedStore,
    topics: StoredTopics,
    fields: dict[str, Any],
    stored: StoredManagedLedger | None = None,
) -> int:
    damages = store.damages if stored is None else _concerning(store, stored)
    problems = [*map(_problem, damages), *map(_row_problem, topics.problems)]
    fields |= {"torn_tail": store.torn_tail, "problems": problems}
    print(json.dumps(fields, indent=2))
    return EXIT_FAILURE if problems else 0


def _problem(problem: Problem) -> dict[str, Any]:
    return {key: None if value in {-1, ""} else value for key, value in problem._asdict().items()}


def _row_problem(reason: str) -> dict[str, Any]:
    return _problem(Problem("", -1, reason, -1, -1, ""))


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _plain(value: object) -> str:
    return "-" if value is None else str(value)


def _report(text: str) -> None:
    print(f"kledger: {text}", file=sys.stderr)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number from 0 on, got {text!r}")
    return int(text)


def _partition(text: str) -> PartitionName:
    partition = partition_of(f"{text}/{UUID(int=0).hex}")
    if partition is None:
        raise argparse.ArgumentTypeError(f"expected TOPIC-PARTITION, got {text!r}")
    return partition
