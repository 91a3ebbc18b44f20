"""Where a topic ends, by its broker and by its tier."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import kledger.sync
from kledger.testing import ServerThread
from pipelines.errors import PipelineFailed, WrongCall
from pipelines.options import SourceOptions
from pipelines.topic_source import latest_ends
from tests.pipelines.records import create_topic, json_record, send

TOPIC, COUNT = "orders", 2000


def test_latest_ends_are_those_of_the_mode(tmp_path: Path) -> None:
    """The open ledger is not in the tier; the tier needs no server."""
    url = f"file://{tmp_path}/tier"
    direct = {"mode": "direct", "path": url}
    settings: dict[str, object] = {"offload.url": url}
    with ServerThread(tmp_path / "data", native="127.0.0.1:0", settings=settings) as server:
        servers = server.kafka_address
        create_topic(servers, TOPIC, partitions=2, internal_segment_bytes="16384")
        records = [json_record(n, partitions=2) for n in range(COUNT)]
        send(servers, TOPIC, records, **{"batch.num.messages": 50, "linger.ms": 1000})
        with kledger.sync.connect(f"kledger://{server.native_address}") as client:
            client.offload(TOPIC)
        ends = latest_ends(SourceOptions(servers=servers, topic=TOPIC, option={}))
    assert ends == {TOPIC: {"0": COUNT // 2, "1": COUNT // 2}}
    tiered = latest_ends(SourceOptions(servers=servers, topic=TOPIC, option=direct))
    assert tiered.keys() == ends.keys()
    assert tiered[TOPIC].keys() == ends[TOPIC].keys()
    assert all(0 < end < COUNT // 2 for end in tiered[TOPIC].values())
    with pytest.raises(WrongCall, match="not in the tier"):
        latest_ends(SourceOptions(servers=servers, topic="other", option=direct))


def test_latest_ends_without_a_server_are_a_failure() -> None:
    """The port of a socket that does not listen, so no other process can take it meanwhile."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(PipelineFailed, match="refused"):
            latest_ends(SourceOptions(servers=servers, topic=TOPIC, option={}))
