"""Stores to look into: a topic with segments, and a managed ledger of no topic, stopped."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.cli import run
from kledger.ledger import LedgerStore, ManagedLedgerConfig
from kledger.ledger.testing import ManualClock
from kledger.runtime.entropy import SeededEntropy
from kledger.topics import TopicRegistry
from tests.batches.words import NOW_MS
from tests.topics.words import append

BATCHES, RECORDS = 6, 3


def batch(number: int) -> bytearray:
    """Return batch `number` of the topic: three records."""
    records = [
        NewRecord(
            b"value %02d" % (RECORDS * number + index),
            key=None if index else b"k\xff",
            timestamp=NOW_MS + number,
            headers=(("h", b"1"), ("h", None)) if index == 2 else (),
        )
        for index in range(RECORDS)
    ]
    return build_batch(records)


async def make_store(folder: Path) -> None:
    """Leave a store with `orders-0`, 18 records in three segments, and `events`."""
    clock = ManualClock(NOW_MS)
    async with LedgerStore.open(folder, clock=clock) as store:
        registry = await TopicRegistry.open(store, None, clock, SeededEntropy(1))
        size = 2 * len(batch(0))
        topic = await registry.create(
            "orders", partitions=2, configs={"internal.segment.bytes": str(size)}
        )
        log = await topic.open_partition(0)
        for number in range(BATCHES):
            result = await append(log, batch(number))
            assert result.error is None
        await topic.open_partition(1)
        events = await store.open_managed_ledger(
            "events/all", config=ManagedLedgerConfig(max_entries_per_ledger=2)
        )
        for number in range(5):
            await events.add_entry(b'event "%d"\n' % number)
        await events.set_property("owner", "me")
        await registry.close()


def copy(source: Path, target: Path) -> Path:
    """Copy a store, to be damaged."""
    return Path(shutil.copytree(source, target))


def contents(folder: Path) -> dict[Path, tuple[bytes, int]]:
    """Return what stands in a folder, with the times of change."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def flip(folder: Path, data: bytes) -> None:
    """Change a bit of something in the log."""
    path = folder / "log" / "00000001.log"
    raw = bytearray(path.read_bytes())
    raw[raw.index(data)] ^= 1
    path.write_bytes(raw)


class CommandResult:
    """The output of a command, and its exit code."""

    def __init__(
        self, capsys: pytest.CaptureFixture[str], *words: object, noun: str = "ledger"
    ) -> None:
        self.code = run([noun, *map(str, words)])
        captured = capsys.readouterr()
        self.out = captured.out.splitlines()
        self.err = captured.err.splitlines()

    @property
    def json(self) -> dict[str, Any]:
        """The document."""
        found: dict[str, Any] = json.loads("\n".join(self.out))
        return found
