"""What a cluster of nodes asks of its object store and of its database, at several loads.

The figures are those of docs/CLUSTER.md, "What it costs": requests do not depend on how fast the
machine is, as long as it keeps up with the load; a run that does not says so in its log.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from compat_tests.conftest import SETTINGS, create_topic, new_database
from compat_tests.deadlines import PROGRAM_S
from compat_tests.servers import ClusterStores, NodesServer
from compat_tests.servers.s3_servers import VersityGateway
from compat_tests.tier_proxy import TierProxy

pytestmark = pytest.mark.slow

LOG = logging.getLogger("costs")
NODES: Final = 6
PARTITIONS: Final = 12
LOAD_S: Final = float(os.environ.get("NODES_LOAD_S", "150"))
"""Longer than a minute, after which groups in the database become objects."""
TICK_S: Final = 0.01
VALUE: Final = random.Random(5).randbytes(1000)
BUCKET: Final = "cluster"
COUNTED: Final = ("commits", "puts", "put_bytes", "inline_groups", "inline_bytes", "gets")
PUTS_PER_SECOND: Final = 8
INLINE_BYTES_PER_SECOND: Final = 1_000_000
"""Limits of a node; its larger groups, and what is over the limit, are objects."""
SLACK: Final = 1.2
"""Retries, and second PUTs beside one that takes long, which a busy machine has."""


@pytest.mark.parametrize("kb_per_s", [0, 100, 1_000, 10_000])
def test_requests_for_each_load(pytestconfig: pytest.Config, tmp_path: Path, kb_per_s: int) -> None:
    with VersityGateway(tmp_path / "s3") as objects, TierProxy(objects.address) as proxy:
        objects.make_bucket(BUCKET)
        options = {**objects.options, "allow_http": "true", "endpoint": f"http://{proxy.address}"}
        stores = ClusterStores(
            url=new_database(pytestconfig),
            store=f"s3://{BUCKET}/prefix",
            settings={
                "cluster.sql.asynchronous": "true",
                **{f"offload.options.{name}": value for name, value in options.items()},
            },
        )
        with NodesServer(tmp_path, stores, nodes=NODES, settings=SETTINGS) as servers:
            create_topic(servers.bootstrap, "costs", PARTITIONS, {})
            send(servers.bootstrap, 1, 1)
            before, requests_before, begun = cluster_counts(servers), proxy.count(), now()
            sent = send(servers.bootstrap, kb_per_s, LOAD_S)
            took = now() - begun
            counted = cluster_counts(servers) - before
            requests = proxy.count() - requests_before
    LOG.warning("%d KB/s: sent %.2f MB in %.1f s", kb_per_s, sent / 1e6, took)
    LOG.warning("each second: %s", {name: round(n / took, 2) for name, n in counted.items()})
    LOG.warning(
        "each second, store: %s", {name: round(n / took, 2) for name, n in requests.items()}
    )
    if sent:
        LOG.warning("each MB: %s", {name: round(n / sent * 1e6, 3) for name, n in counted.items()})
    else:
        assert counted["puts"] == counted["inline_groups"] == 0
        assert requests["PUT"] == requests["POST"] == 0
    assert requests["PUT"] / took <= SLACK * PUTS_PER_SECOND * NODES
    assert counted["inline_bytes"] / took <= SLACK * INLINE_BYTES_PER_SECOND * NODES


def now() -> float:
    return time.monotonic()


def send(bootstrap: str, kb_per_s: int, seconds: float) -> int:
    """Send records of a KB at a rate, for so long; return their bytes."""
    producer = Producer({
        "bootstrap.servers": bootstrap,
        "linger.ms": 5,
        "queue.buffering.max.kbytes": 262_144,
    })  # fmt: skip
    begun, sent = now(), 0
    while (passed := now() - begun) < seconds:
        for _ in range(int(passed * kb_per_s) - sent):
            producer.produce("costs", VALUE, partition=sent % PARTITIONS)
            sent += 1
        producer.poll(0)
        threading.Event().wait(TICK_S)
    assert producer.flush(PROGRAM_S) == 0
    return sent * len(VALUE)


def cluster_counts(servers: NodesServer) -> Counter[str]:
    """Return the sums of the counters of all nodes."""
    found: Counter[str] = Counter()
    for address in servers.admin_addresses:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=PROGRAM_S) as page:
            text = page.read().decode()
        for name in COUNTED:
            value = re.search(rf"^kledger_cluster_{name} (\S+)$", text, re.MULTILINE)
            assert value is not None, f"no kledger_cluster_{name} at {address}"
            found[name] += int(float(value[1]))
    return found
