"""What a tier costs: requests to an S3 server for each GB that is offloaded and read again.

The figures are those of docs/TIERS.md, "Costs"; run it alone with `-o log_cli=true` to see them.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import kledger.sync
from compat_tests.conftest import create_topic
from compat_tests.deadlines import PROGRAM_S, WAIT_S, rounds, wait_until
from compat_tests.servers import KledgerServer
from compat_tests.servers.s3_servers import VersityGateway
from compat_tests.test_tier_crash import BUCKET, TIERED, is_tiered, tiered_settings
from compat_tests.tier_proxy import TierProxy

pytestmark = pytest.mark.slow

MIB: Final = 1 << 20
VALUE: Final = random.Random(3).randbytes(MIB // 2)
LOG = logging.getLogger("costs")


@pytest.mark.parametrize(
    ("ledger_mib", "total_mib", "puts_per_gb", "gets_per_gb"),
    [(4, 64, 900, 1300), (128, 384, 110, 400)],
)
def test_requests_for_each_gb(
    *, tmp_path: Path, ledger_mib: int, total_mib: int, puts_per_gb: int, gets_per_gb: int
) -> None:
    with VersityGateway(tmp_path / "s3") as store, TierProxy(store.address) as proxy:
        store.make_bucket(BUCKET)
        settings = tiered_settings(store, proxy) | {"storage.cache_bytes": str(8 * MIB)}
        with KledgerServer(tmp_path / "kledger", settings=settings, is_native=True) as server:
            config = TIERED | {"internal_segment_bytes": str(ledger_mib * MIB)}
            create_topic(server.bootstrap, "costs", 1, config)
            produce(server.bootstrap, total_mib)
            tiered = wait_tiered(server)
            written = proxy.count()
            received = consume(server.bootstrap)
            read = proxy.count() - written
    for what, counted, size in (("written", written, tiered), ("read", read, received)):
        LOG.warning("%d MiB a ledger, %.3f GB: %s", ledger_mib, size / 1e9, dict(counted))
        LOG.warning("%s per GB: %s", what, {name: n / size * 1e9 for name, n in counted.items()})
    assert (written["PUT"] + written["POST"]) / tiered * 1e9 < puts_per_gb
    assert written["DELETE"] == 0
    assert read["GET"] / tiered * 1e9 < gets_per_gb
    assert {"GET"} == read.keys()


def produce(bootstrap: str, total_mib: int) -> None:
    """Write records that do not compress."""
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.kbytes": 65_536})
    for _ in range(2 * total_mib):
        for _ in rounds("a free place in the queue"):
            try:
                producer.produce("costs", VALUE)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(PROGRAM_S) == 0


def wait_tiered(server: KledgerServer) -> int:
    """Wait until the tier alone has the closed ledgers, and return their bytes."""
    with kledger.sync.connect(f"kledger://{server.native_address}") as client:
        wait_until(lambda: is_tiered(client, "costs"), "costs is tiered", within_s=PROGRAM_S)
        (partition,) = client.topic_stats("costs").partitions
        return sum(each.size for each in partition.ledgers[:-1])


def consume(bootstrap: str) -> int:
    """Read everything in order, and return the bytes of the values."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
    })  # fmt: skip
    _, end = consumer.get_watermark_offsets(TopicPartition("costs", 0), WAIT_S)
    consumer.assign([TopicPartition("costs", 0, 0)])
    sizes: Counter[int] = Counter()
    for _ in rounds(f"{end} records", within_s=PROGRAM_S):
        for message in consumer.consume(100, timeout=0.5):
            assert message.error() is None, message.error()
            offset, value = message.offset(), message.value()
            assert offset is not None
            sizes[offset] = len(value or b"")
        if len(sizes) == end:
            break
    consumer.close()
    return sizes.total()
