"""The server is killed in the middle of compactions, again and again, and started on its folder.

What must hold after each kill: `kledger doctor` finds nothing in the folder; the newest
acknowledged record of every key is there, at its offset and byte for byte, or a later one of its
key; no partition ends before a record that was acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import random
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import KafkaError, Message

import kledger
from compat_tests.compacted_topics import (
    SeenRecord,
    compact,
    create_compacted,
    read_partition,
)
from compat_tests.conftest import COMPACTING
from compat_tests.crash_load import CrashProducer, record_value
from compat_tests.deadlines import PROGRAM_S, WAIT_S, rounds
from compat_tests.servers import KledgerServer
from compat_tests.servers.kledger import kledger_program
from compat_tests.test_crash import crash_seed

pytestmark = [
    pytest.mark.peer("confluent-kafka"),
    pytest.mark.data_folder("`kledger doctor` looks into the folder after each kill"),
]

TOPIC: Final = "compacted"
PARTITIONS: Final = 2
KEYS: Final = 1_000
TOMBSTONE_EVERY: Final = 17
INTO_COMPACTION_S_MAX: Final = 0.3
BURST_RECORDS: Final = 50
PAUSE_S: Final = 0.02
LOG = logging.getLogger("crash")
Key = tuple[int, bytes]
"""Partition and key."""


class Newest(NamedTuple):
    """The newest acknowledged record of a key; offset -1: its acknowledgement named none."""

    sequence: int
    offset: int


class KeyedProducer(CrashProducer):
    """Writes the same keys again and again."""

    pause_s = PAUSE_S

    def __init__(self, name: str, bootstrap: str, codec: str) -> None:
        super().__init__(name, bootstrap, codec)
        self.newest: dict[Key, Newest] = {}
        self.sent: dict[Key, int] = {}
        self.sent_count = 0

    def send_round(self) -> None:
        for _ in range(BURST_RECORDS):
            self._send(self.sent_count)

    def _send(self, sequence: int) -> None:
        number = sequence * 7919 % KEYS
        partition, key = number % PARTITIONS, f"{self.name}-{number}".encode()
        headers: list[tuple[str, str | bytes | None]] = [("sequence", str(sequence).encode())]
        noted = partial(self._delivered, (partition, key), sequence)
        try:
            self.producer.produce(
                TOPIC, expected_value(self.name, partition, sequence), key, partition,
                headers=headers, on_delivery=noted,
            )  # fmt: skip
        except BufferError:
            self.producer.poll(PAUSE_S)
        else:
            self.sent[partition, key] = sequence
            self.sent_count += 1

    def _delivered(
        self, key: Key, sequence: int, error: KafkaError | None, message: Message
    ) -> None:
        if error is not None:
            self.errors.append(f"{self.name} {key} {sequence}: {error}")
            return
        offset = message.offset()
        self.newest[key] = Newest(sequence, -1 if offset is None else offset)


def expected_value(producer: str, partition: int, sequence: int) -> bytes | None:
    """Give the value of a record; some are tombstones."""
    if sequence % TOMBSTONE_EVERY == 0:
        return None
    return record_value(producer, (TOPIC, partition), sequence)


@pytest.mark.feature("3 kills in compactions: the newest record of every key is there")
def test_few_kills_in_compactions_lose_nothing(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    run_kills(tmp_path, "fsync", kills=3, seed=crash_seed(pytestconfig))


@pytest.mark.slow
@pytest.mark.feature(
    "20 kills in compactions ({durability}): the newest record of every key is there"
)
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_many_kills_in_compactions_lose_nothing(
    pytestconfig: pytest.Config, tmp_path: Path, durability: str
) -> None:
    kills = int(pytestconfig.getoption("--kills"))
    run_kills(tmp_path, durability, kills=kills, seed=crash_seed(pytestconfig))


def run_kills(folder: Path, durability: str, *, kills: int, seed: int) -> None:
    """Kill in compactions, check the folder, restart, check what a consumer sees."""
    LOG.warning("--crash-seed %d", seed)
    moments = random.Random(seed)
    server = KledgerServer(folder, durability=durability, settings=COMPACTING, is_native=True)
    with server:
        create_compacted(server.bootstrap, TOPIC, PARTITIONS)
        producers = [
            KeyedProducer("plain", server.bootstrap, "none"),
            KeyedProducer("packed", server.bootstrap, "zstd"),
        ]
        for producer in producers:
            producer.start()
        for number in range(1, kills + 1):
            wait_compacting(server)
            threading.Event().wait(moments.uniform(0, INTO_COMPACTION_S_MAX))
            server.kill()
            newest = {key: each for one in producers for key, each in one.newest.copy().items()}
            require_sound(server)
            server.start()
            require_newest(server.bootstrap, newest)
            LOG.warning("kill %d: held, %d keys", number, len(newest))
        assert [0, 0] == [producer.finish() for producer in producers]
        assert [] == [error for producer in producers for error in producer.errors]
        require_last(server.bootstrap, producers)
        server.stop()
        require_sound(server)


def wait_compacting(server: KledgerServer) -> None:
    """Wait until a compaction runs."""

    async def wait() -> None:
        async with kledger.connect(f"kledger://{server.native_address}") as client:
            for _ in rounds("a compaction", within_s=PROGRAM_S):
                status = await client.compaction_status(TOPIC)
                if status.state == "running":
                    return

    asyncio.run(wait())


def require_sound(server: KledgerServer) -> None:
    """Let the doctor look at the folder of a server that does not run."""
    command = [kledger_program(), "doctor", "--data", str(server.data_folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert 0 == done.returncode, done.stdout + done.stderr


def require_newest(bootstrap: str, newest: dict[Key, Newest]) -> None:
    """Check a restarted server against what had been acknowledged."""
    for partition in range(PARTITIONS):
        found = last_of_each_key(read_partition(bootstrap, TOPIC, partition=partition))
        for (place, key), acknowledged in newest.items():
            if place == partition:
                assert key in found, f"{key!r}: {acknowledged} is lost"
                require_as_new(partition, found[key], acknowledged)


def require_as_new(partition: int, found: SeenRecord, acknowledged: Newest) -> None:
    """Check that a record is the acknowledged one or a later one, and has its value."""
    assert found.key is not None
    sequence = int(found.headers[0][1] or b"")
    assert sequence >= acknowledged.sequence, f"{found.key!r}: {acknowledged} is lost"
    assert found.offset >= acknowledged.offset, f"{found.key!r}: {acknowledged} moved"
    if sequence == acknowledged.sequence:
        assert acknowledged.offset in (found.offset, -1), f"{found.key!r}: {acknowledged} moved"
    name = found.key.decode().split("-")[0]
    assert expected_value(name, partition, sequence) == found.value


def last_of_each_key(records: list[SeenRecord]) -> dict[bytes, SeenRecord]:
    """Give the newest record of each key; offsets only rise."""
    offsets = [each.offset for each in records]
    assert sorted(set(offsets)) == offsets
    return {each.key: each for each in records if each.key is not None}


def require_last(bootstrap: str, producers: list[KeyedProducer]) -> None:
    """Check that after a last compaction exactly the last record of every key is left."""
    expected = {key: sequence for one in producers for key, sequence in one.sent.items()}
    found = {
        (partition, each.key): int(each.headers[0][1] or b"")
        for partition in range(PARTITIONS)
        for each in compact(bootstrap, TOPIC, partition=partition)
    }
    LOG.warning("%d records sent, %d left", sum(p.sent_count for p in producers), len(found))
    assert expected == found
