"""Real clients push metrics of themselves, and what they pushed is shown.

Both libraries ask for a subscription when they connect, push at its interval, and once more when
they are closed; a subscription that is set later is seen minutes later. So it is set first.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from confluent_kafka import Producer

from compat_tests.conftest import MakeTopic, Tool, run_tool
from compat_tests.deadlines import WAIT_S, ask_until
from compat_tests.test_java_tools import PATIENT, TOOLS

PREFIX = "org.apache.kafka.producer."
INTERVAL_MS = 100


def client_metrics(native_url: str, *words: str) -> Any:
    """Give what `kledger client-metrics` prints."""
    command = [sys.executable, "-m", "kledger", "client-metrics", *words, "--json"]
    command += ["--native", native_url.partition("//")[2]]
    return json.loads(run_tool(command, stdin="", expect=0))


def pushed_by(native_url: str, client_id: str) -> dict[str, Any] | None:
    """Give what a client pushed last, if it did."""
    for each in client_metrics(native_url, "list")["clients"]:
        if each["client_id"] == client_id and each["pushed_at_ms"] is not None:
            shown: dict[str, Any] = client_metrics(native_url, "show", each["instance_id"])
            return shown
    return None


def values(shown: dict[str, Any]) -> dict[str, float | None]:
    """Give the values by their names behind the prefix that was asked for."""
    assert all(each["name"].startswith(PREFIX) for each in shown["metrics"])
    return {each["name"].removeprefix(PREFIX): each["value"] for each in shown["metrics"]}


@pytest.fixture
def wanted(request: pytest.FixtureRequest, java: Tool, bootstrap: str) -> str:
    """Subscribe to metrics of producers of one client id, and give that."""
    client_id = str(request.node.name)
    java(
        f"{TOOLS}.ClientMetricsCommand",
        *("--bootstrap-server", bootstrap, "--alter", "--name", client_id),
        *("--metrics", PREFIX, "--interval", str(INTERVAL_MS), "--match", f"client_id={client_id}"),
    )
    return client_id


@pytest.mark.peer("confluent-kafka")
@pytest.mark.feature("metrics of the client are pushed and shown")
def test_librdkafka_pushes(
    bootstrap: str, native_url: str, make_topic: MakeTopic, wanted: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": wanted})
    producer.produce(make_topic(), b"value")
    assert producer.flush(WAIT_S) == 0

    def pushed() -> dict[str, Any] | None:
        producer.poll(0)
        return pushed_by(native_url, wanted)

    shown = ask_until(pushed, bool, "a push of librdkafka")
    assert shown is not None
    assert "rdkafka" in shown["software"]
    assert shown["subscriptions"] == [wanted]
    found = values(shown)
    assert {"connection.creation.total", "node.request.latency.avg"} <= found.keys()
    assert found["produce.throttle.time.avg"] == 0


@pytest.mark.peer("kafka-java-tools")
@pytest.mark.feature("console producer: its metrics are pushed and shown")
def test_java_pushes(
    java: Tool, bootstrap: str, native_url: str, make_topic: MakeTopic, wanted: str
) -> None:
    java(
        f"{TOOLS}.ConsoleProducer",
        *("--bootstrap-server", bootstrap, "--topic", make_topic(), "--sync", *PATIENT),
        *("--command-property", f"client.id={wanted}"),
        *("--command-property", "enable.metrics.push=true"),
        stdin="one\ntwo\n",
    )
    shown = pushed_by(native_url, wanted)
    assert shown is not None, "what is pushed on closing is there at once"
    assert shown["software"] == "apache-kafka-java 4.3.0"
    found = values(shown)
    assert found["buffer.total.bytes"] == 32 << 20
    assert found["connection.count"]
