"""The server is killed in the middle of offloads to an S3 server, and started on its folder.

What must hold: every acknowledged record that retention has left is there once, in order, byte for
byte, at its offset, read from the tier; the bucket has just what the ledgers name, and when the
topics have been deleted, nothing. Unfinished uploads count, which no listing of objects shows.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

import kledger.sync
from compat_tests.conftest import SETTINGS, create_topic
from compat_tests.crash_load import LoadProducer, LogChecker, record_origin, record_value
from compat_tests.deadlines import PROGRAM_S, WAIT_S, ask_until, rounds, wait_until
from compat_tests.servers import KledgerServer
from compat_tests.servers.s3_servers import S3Server, VersityGateway
from compat_tests.test_crash import crash_seed
from compat_tests.tier_proxy import Moment, TierProxy

pytestmark = [pytest.mark.peer("confluent-kafka"), pytest.mark.slow]

KILLS: Final = 50
BUCKET: Final = "tier"
KEPT, TRIMMED = ("kept", 0), ("trimmed", 0)
TIERED: Final = {
    "remote_storage_enable": "true",
    "local_retention_bytes": "0",
    "retention_ms": "-1",
    "internal_segment_bytes": "50000",
}
RETENTION: Final = {"retention_bytes": "300000"}
REQUESTS_MAX: Final = 20
CHECK_EVERY: Final = 5
LARGE_VALUE_BYTES: Final = 1 << 19
LARGE_BYTES: Final = 34 * LARGE_VALUE_BYTES
"""Of a ledger: three parts of an upload."""
LARGE_LEDGERS: Final = 8
LARGE_COUNT: Final = 34 * LARGE_LEDGERS + 3
LARGE_KILLS: Final = 10
LOG = logging.getLogger("crash")


class PacedProducer(LoadProducer):
    """Closes a few ledgers a second."""

    pause_s = 0.02


@pytest.mark.feature("50 kills in offloads to an S3 server: nothing is lost, nothing is left")
def test_kills_in_offloads_lose_and_leave_nothing(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    seed = crash_seed(pytestconfig)
    LOG.warning("--crash-seed %d", seed)
    with VersityGateway(tmp_path / "s3") as store, TierProxy(store.address) as proxy:
        store.make_bucket(BUCKET)
        settings = tiered_settings(store, proxy)
        with KledgerServer(tmp_path / "kledger", settings=settings, is_native=True) as server:
            run_kills(server, proxy, random.Random(seed))
            delete_topics(server, store, [KEPT[0], TRIMMED[0]])


@pytest.mark.feature("kills in uploads of parts to an S3 server: no part is left")
def test_kills_in_uploads_of_parts_leave_nothing(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """Ledgers of three parts; each kill is at another request of their uploads."""
    seed = crash_seed(pytestconfig)
    LOG.warning("--crash-seed %d", seed)
    moments = random.Random(seed)
    with VersityGateway(tmp_path / "s3") as store, TierProxy(store.address) as proxy:
        store.make_bucket(BUCKET)
        settings = tiered_settings(store, proxy) | {"offload.parallel": "1"}
        with KledgerServer(tmp_path / "kledger", settings=settings, is_native=True) as server:
            plain = {"internal_segment_bytes": str(LARGE_BYTES), "retention_ms": "-1"}
            create_topic(server.bootstrap, KEPT[0], 1, plain)
            produce_large(server.bootstrap)
            begin_offloading(server.bootstrap)
            left: list[str] = []
            for requests in range(1, LARGE_KILLS + 1):
                kill_at(server, proxy, requests, is_answered=moments.random() < 0.5)
                left += store.unfinished_uploads(BUCKET)
                server.start()
            LOG.warning("%d uploads were left by %d kills", len(left), LARGE_KILLS)
            assert left, "no kill was in an upload"
            check_large(server, store)
            delete_topics(server, store, [KEPT[0]])


def produce_large(bootstrap: str) -> None:
    """Write records that do not compress, for `LARGE_LEDGERS` ledgers and some more."""
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.kbytes": 262_144})
    for number in range(LARGE_COUNT):
        producer.produce(KEPT[0], large_value(number))
    assert producer.flush(PROGRAM_S) == 0


def begin_offloading(bootstrap: str) -> None:
    """Have closed ledgers offloaded, and their primary copies deleted."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in (("remote.storage.enable", "true"), ("local.retention.bytes", "0"))
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, KEPT[0], incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(WAIT_S)


def large_value(number: int) -> bytes:
    """Give the value at an offset."""
    return random.Random(number).randbytes(LARGE_VALUE_BYTES)


def check_large(server: KledgerServer, store: S3Server) -> None:
    """Check that the bucket has what the ledgers name and nothing else, and read that."""
    with kledger.sync.connect(f"kledger://{server.native_address}") as client:
        wait_until(partial(is_tiered, client, KEPT[0]), "all is tiered", within_s=PROGRAM_S)
        (partition,) = client.topic_stats(KEPT[0]).partitions
    named = [f"-ledger-{each.ledger_id}" for each in partition.ledgers[:-1]]
    expected = sorted([*named, *(f"{each}-index" for each in named), "manifest.json"])
    assert len(named) >= LARGE_LEDGERS - 1

    def found() -> list[str]:
        names = [name.rpartition("/")[2] for name in left_in(store)]
        return sorted(
            name[name.find("-ledger-") :] if "-ledger-" in name else name for name in names
        )

    ask_until(found, lambda names: names == expected, f"{expected}", within_s=PROGRAM_S)
    assert [] == store.unfinished_uploads(BUCKET)
    consumer = Consumer({
        "bootstrap.servers": server.bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(*KEPT, 0)])
    count = 0
    for _ in rounds(f"{LARGE_COUNT} records", within_s=PROGRAM_S):
        for message in consumer.consume(100, timeout=0.5):
            assert message.error() is None, message.error()
            assert (count, large_value(count)) == (message.offset(), message.value())
            count += 1
        if count == LARGE_COUNT:
            break
    consumer.close()


def tiered_settings(store: S3Server, proxy: TierProxy) -> dict[str, str]:
    """Give the settings of a server that offloads through the proxy and has no caches."""
    options = store.options | {"endpoint": f"http://{proxy.address}"}
    return SETTINGS | {
        "offload.url": f"s3://{BUCKET}/prefix",
        "offload.cache_bytes": "0",
        "storage.cache_bytes": "0",
        "log.retention.check.interval.ms": "100",
        **{f"offload.options.{name}": str(value).lower() for name, value in options.items()},
    }


def run_kills(server: KledgerServer, proxy: TierProxy, moments: random.Random) -> None:
    """Kill and restart; between two checks, a server that cleans up is killed, too."""
    create_topic(server.bootstrap, KEPT[0], 1, TIERED)
    create_topic(server.bootstrap, TRIMMED[0], 1, TIERED | RETENTION)
    producer = PacedProducer("load", server.bootstrap, [KEPT, TRIMMED], "none")
    producer.start()
    checker = LogChecker(server.bootstrap, "unused", [KEPT])
    for number in range(1, KILLS + 1):
        requests, is_answered = moments.randint(1, REQUESTS_MAX), moments.random() < 0.5
        kill_at(server, proxy, requests, is_answered=is_answered)
        acknowledged = producer.acknowledged_so_far()
        server.start()
        if number % CHECK_EVERY == 0:
            checker.read_to_end()
            checker.require(producer.name, {KEPT: acknowledged[KEPT]})
            LOG.warning("kill %d: held, %d records", number, checker.records)
    checker.close()
    assert 0 == producer.finish()
    assert [] == producer.errors
    final_check(server, producer)


def kill_at(server: KledgerServer, proxy: TierProxy, requests: int, *, is_answered: bool) -> None:
    """Kill the server at one of its next requests to the store."""
    is_killed = threading.Event()

    def kill() -> None:
        server.kill()
        is_killed.set()

    proxy.arm(Moment(requests, is_answered, kill))
    assert is_killed.wait(PROGRAM_S), f"fewer than {requests} requests: {server.log_tail()}"
    proxy.disarm()


def final_check(server: KledgerServer, producer: LoadProducer) -> None:
    """Read both topics from their beginnings, where only the tier has all but the last ledgers."""
    with kledger.sync.connect(f"kledger://{server.native_address}") as client:
        for name, _ in (KEPT, TRIMMED):
            wait_until(partial(is_tiered, client, name), f"{name} is tiered", within_s=PROGRAM_S)
        checker = LogChecker(server.bootstrap, "unused", [KEPT])
        checker.read_to_end()
        checker.close()
        checker.require(producer.name, {KEPT: producer.acknowledged[KEPT]})
        assert producer.sent[KEPT] == checker.records
        check_trimmed(server.bootstrap, producer)
        for name, _ in (KEPT, TRIMMED):
            (partition,) = client.topic_stats(name).partitions
            LOG.warning("%s: %d ledgers, %s", name, len(partition.ledgers), partition.reads)
            assert partition.reads["tier"] > 0


def is_tiered(client: kledger.sync.Client, topic: str) -> bool:
    """Whether the tier alone has every closed ledger."""
    (partition,) = client.topic_stats(topic).partitions
    return all(each.primary_deleted for each in partition.ledgers[:-1])


def check_trimmed(bootstrap: str, producer: LoadProducer) -> None:
    """Check what retention has left: dense to the end, byte for byte, as acknowledged."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "check.crcs": True,
    })  # fmt: skip
    start, end = consumer.get_watermark_offsets(TopicPartition(*TRIMMED), WAIT_S)
    assert 0 < start < end == producer.sent[TRIMMED]
    consumer.assign([TopicPartition(*TRIMMED, start)])
    found: dict[int, bytes] = {}
    for _ in rounds(f"{end - start} records of {TRIMMED}"):
        for message in consumer.consume(5000, timeout=0.5):
            assert message.error() is None, f"{TRIMMED}: {message.error()}"
            offset, value = message.offset(), message.value()
            assert start + len(found) == offset
            assert value is not None
            found[offset] = value
        if len(found) == end - start:
            break
    consumer.close()
    sequences = {offset: record_origin(value)[2] for offset, value in found.items()}
    require_values(found, sequences, producer.name)
    for sequence, offset in producer.acknowledged[TRIMMED]:
        assert offset < start or sequences[offset] == sequence, f"{sequence} is not at {offset}"


def require_values(found: Mapping[int, bytes], sequences: Mapping[int, int], name: str) -> None:
    """Check every byte, and that the sequences are dense."""
    for offset, value in found.items():
        assert record_value(name, TRIMMED, sequences[offset]) == value, f"{offset}: other bytes"
    first = min(sequences.values())
    assert list(range(first, first + len(found))) == list(sequences.values())


def delete_topics(server: KledgerServer, store: S3Server, names: list[str]) -> None:
    """Delete what was written; the bucket gets empty, unfinished uploads included."""
    assert left_in(store)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for deleted in admin.delete_topics(names).values():
        deleted.result(WAIT_S)
    ask_until(lambda: left_in(store), lambda names: not names, "empty bucket", within_s=PROGRAM_S)
    assert [] == store.unfinished_uploads(BUCKET)


def left_in(store: S3Server) -> list[str]:
    """Give the files of the bucket; the server's own locks lie beside it."""
    return [name for name in store.files() if name.startswith(f"{BUCKET}/")]
