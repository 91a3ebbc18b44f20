"""Folder plan: which workers may use a folder, by the record that its first parent has written.

Rule: pure. The record of a topic names the broker id of each partition's worker; a coordinator
shard belongs to a worker by its number modulo the first number of workers. So neither the ids nor
that number may change, and workers may be added but never removed.
Must not know: files.

    {"format": 1, "made_with": 2, "workers": 4, "node_id": 1}
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final

from kledger.setting_values import INT32_MAX
from kledger.workers.worker_plan import WorkersMistake

RECORD: Final = "workers.json"
LOCK: Final = "lock"
FORMAT: Final = 1
_STORE: Final = {"log", "index"}
"""What the folder of a server without workers has."""
_HARMLESS: Final = {LOCK, "lost+found"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderRecord:
    """The workers of a folder.

    Attributes:
        made_with: how many there were at first.
        workers: how many there were at most.
        node_id: broker id of the first one.
    """

    made_with: int
    workers: int
    node_id: int

    def encode(self) -> bytes:
        """Return the content of the file RECORD."""
        return json.dumps({"format": FORMAT, **asdict(self)}).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes) -> "FolderRecord":
        """Read the content of the file RECORD.

        Raises:
            ValueError: it is none.
        """
        fields = json.loads(content)
        wanted = {"format", "made_with", "workers", "node_id"}
        if not isinstance(fields, dict) or set(fields) != wanted:
            raise ValueError(f"expected an object with {', '.join(sorted(wanted))}")
        if not all(type(each) is int and each >= 0 for each in fields.values()):
            raise ValueError("expected whole numbers")
        if fields.pop("format") != FORMAT:
            raise ValueError(f"expected format {FORMAT}")
        return cls(**fields)


def plan_folder(
    folder: str, names: Iterable[str], record: FolderRecord | None, *, count: int, node_id: int
) -> FolderRecord:
    """Return the record of a folder as it is while `count` workers run.

    Args:
        folder: for messages.
        names: everything in it.
        record: the one that is stored.
        count: workers that are to run.
        node_id: of the settings.

    Raises:
        WorkersMistake: they may not use this folder.
    """
    if node_id + count - 1 > INT32_MAX:
        raise WorkersMistake(
            f"node.id: expected at most {INT32_MAX - count + 1} with {count} workers, got {node_id}"
        )
    if record is None:
        _check_new(folder, names)
        return FolderRecord(made_with=count, workers=count, node_id=node_id)
    if count < record.workers:
        raise WorkersMistake(
            f"server.workers: expected at least {record.workers}, as many as {folder} has "
            f"partitions for, got {count}"
        )
    if node_id != record.node_id:
        raise WorkersMistake(
            f"node.id: expected {record.node_id}, with which {folder} was made, got {node_id}"
        )
    return FolderRecord(made_with=record.made_with, workers=count, node_id=node_id)


def _check_new(folder: str, names: Iterable[str]) -> None:
    found = set(names)
    if found & _STORE:
        raise WorkersMistake(
            f"server.workers: {folder} is the data folder of a server without workers; expected an "
            "empty folder or one of workers"
        )
    strange = [each for each in found - _HARMLESS if not each.startswith(".")]
    if strange:
        raise WorkersMistake(
            f"data folder {folder} holds something else, such as {min(strange)}; "
            "a new data folder must be empty"
        )
