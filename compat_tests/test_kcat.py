"""kcat from Debian, with an older librdkafka: the oldest client of the set."""

from __future__ import annotations

import json

import pytest

from compat_tests.conftest import MakeTopic, Tool
from compat_tests.records import FIRST_TIMESTAMP_MS, STEP_MS, samples
from compat_tests.servers import ServerProcess
from compat_tests.test_confluent_kafka import send_all

pytestmark = pytest.mark.peer("kcat")
LINES = [f"key-{i % 5}\tvalue {i} " + "x" * (i % 50) for i in range(200)]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.feature("produce and consume, {codec}")
@pytest.mark.parametrize("codec", CODECS)
def test_round_trip_gives_back_the_same(kcat: Tool, make_topic: MakeTopic, codec: str) -> None:
    name = make_topic()
    text = "\n".join(LINES) + "\n"
    kcat("-P", "-t", name, "-p", "0", "-K", "\t", "-z", codec, stdin=text)
    assert kcat("-C", "-t", name, "-e", "-q", "-K", "\t").splitlines() == LINES


@pytest.mark.feature("a topic of another namespace: produce and consume")
def test_a_topic_of_a_namespace(kcat: Tool, namespaced_topic: str) -> None:
    kcat("-P", "-t", namespaced_topic, "-K", "\t", stdin="\n".join(LINES) + "\n")
    assert kcat("-C", "-t", namespaced_topic, "-e", "-q", "-K", "\t").splitlines() == LINES


@pytest.mark.feature("headers, timestamps and nulls as JSON")
def test_json_output_shows_every_part(kcat: Tool, bootstrap: str, make_topic: MakeTopic) -> None:
    name, records = make_topic(), samples(30)
    send_all(bootstrap, name, records)
    printed = kcat("-C", "-t", name, "-e", "-q", "-J").splitlines()
    for offset, (line, record) in enumerate(zip(printed, records, strict=True)):
        shown = json.loads(line)
        assert (shown["offset"], shown["ts"]) == (offset, record.timestamp_ms)
        assert shown["key"] == (record.key.decode() if record.key is not None else None)
        assert shown["payload"] == (record.value.decode() if record.value is not None else None)
        pairs = [text for key, value in record.headers for text in (key, value.decode())]
        assert shown.get("headers", []) == pairs


@pytest.mark.workers("changed at one broker, seen at another")
@pytest.mark.feature("metadata list")
def test_list_shows_topic_and_brokers(
    kcat: Tool, server: ServerProcess, make_topic: MakeTopic
) -> None:
    name = make_topic(partitions=3)
    shown = json.loads(kcat("-L", "-J", "-t", name))
    assert sorted(broker["name"] for broker in shown["brokers"]) == sorted(server.broker_addresses)
    (described,) = shown["topics"]
    assert (described["topic"], len(described["partitions"])) == (name, 3)


@pytest.mark.feature("query offsets by timestamp")
def test_query_finds_the_offset(kcat: Tool, bootstrap: str, make_topic: MakeTopic) -> None:
    name = make_topic()
    send_all(bootstrap, name, samples(50))
    time = FIRST_TIMESTAMP_MS + 7 * STEP_MS - 1
    assert kcat("-Q", "-t", f"{name}:0:{time}").split() == [name, "[0]", "offset", "7"]
    assert kcat("-Q", "-t", f"{name}:0:-1").split()[-1] == "50"
    assert kcat("-Q", "-t", f"{name}:0:-2").split()[-1] == "0"


@pytest.mark.feature("consumer group: read, commit, resume")
def test_group_resumes_where_it_stopped(kcat: Tool, make_topic: MakeTopic, group: str) -> None:
    name = make_topic(partitions=2)
    for partition in ("0", "1"):
        kcat("-P", "-t", name, "-p", partition, stdin="\n".join(LINES[:50]) + "\n")
    options = ("-X", "auto.offset.reset=earliest", "-q", "-e", "-u")
    first = kcat("-G", group, *options, "-c", "30", name).splitlines()
    rest = kcat("-G", group, *options, name).splitlines()
    assert len(first) == 30
    assert sorted(first + rest) == sorted(2 * LINES[:50])


@pytest.mark.feature("read from an offset, from the end, and a count")
def test_consume_from_an_offset(kcat: Tool, make_topic: MakeTopic) -> None:
    name = make_topic()
    kcat("-P", "-t", name, "-p", "0", stdin="\n".join(LINES) + "\n")
    assert kcat("-C", "-t", name, "-o", "150", "-c", "3", "-q").splitlines() == LINES[150:153]
    assert kcat("-C", "-t", name, "-o", "-2", "-e", "-q").splitlines() == LINES[-2:]
