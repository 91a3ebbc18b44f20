"""The server is killed in the middle of offloads to an S3 server, and started on its folder.

What must hold: every acknowledged record that retention has left is there once, in order, byte for
byte, at its offset, read from the tier; when the topics have been deleted, nothing is left in the
bucket.
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
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

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
            delete_topics(server, store)


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
        kill_at(server, proxy, moments)
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


def kill_at(server: KledgerServer, proxy: TierProxy, moments: random.Random) -> None:
    """Kill the server at one of its next requests to the store."""
    is_killed = threading.Event()

    def kill() -> None:
        server.kill()
        is_killed.set()

    requests, is_answered = moments.randint(1, REQUESTS_MAX), moments.random() < 0.5
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


def delete_topics(server: KledgerServer, store: S3Server) -> None:
    """Delete what was written; the bucket gets empty, unfinished uploads included."""
    assert left_in(store)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for deleted in admin.delete_topics([KEPT[0], TRIMMED[0]]).values():
        deleted.result(WAIT_S)
    ask_until(lambda: left_in(store), lambda names: not names, "empty bucket", within_s=PROGRAM_S)


def left_in(store: S3Server) -> list[str]:
    """Give the files of the bucket; the server's own locks lie beside it."""
    return [name for name in store.files() if name.startswith(f"{BUCKET}/")]
