"""`kledger topic table` against a running server."""

import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import kledger
from kledger.cli.topic_table import ProgressBar
from kledger.process import ServerProcess
from tests.kledger.cli.serving import Capture, Shell

HANG_SECONDS = 60


@pytest.fixture
def topics(server: ServerProcess, capsys: Capture) -> Shell:
    return Shell(server.native_address, capsys, "topic")


def put(topics: Shell, topic: str, *pairs: tuple[bytes, bytes | None]) -> None:
    async def putting(client: kledger.Client) -> None:
        async with await client.create_producer(topic) as producer:
            for key, value in pairs:
                await producer.send(value, key=key, event_timestamp=0)

    topics.with_client(putting)


def test_table_has_the_last_value_of_each_key(topics: Shell, topic: str) -> None:
    put(topics, topic, (b"b", b"1"), (b"a", b"2"), (b"b", b"\xff\n"), (b"c", b"3"), (b"c", None))
    result = topics("table", topic)
    assert (0, []) == (result.code, result.err)
    assert [
        "KEY  VALUE       OFFSET  TIME",
        '"a"  "2"              1  1970-01-01 00:00:00.000+00:00',
        r'"b"  "\xff\x0a"       2  1970-01-01 00:00:00.000+00:00',
    ] == result.out
    document = topics("table", topic, "--json").json
    assert topic == document["topic"]
    row = {"key": "a", "value": "2", "partition": 0, "offset": 1, "publish_timestamp": 0}
    assert row == document["rows"][0]


def test_table_of_an_empty_topic_has_headings_alone(topics: Shell, topic: str) -> None:
    topics("create", topic)
    assert ["KEY  VALUE  OFFSET  TIME"] == topics("table", topic).out
    assert [] == topics("table", topic, "--json").json["rows"]


def test_table_of_a_missing_topic_is_a_mistake(topics: Shell) -> None:
    result = topics("table", "nowhere")
    assert (2, 1) == (result.code, len(result.err))


@contextmanager
def following(topics: Shell, topic: str, *words: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-P", "-m", "kledger", "topic", "table", topic, "--follow", *words]
    process = subprocess.Popen(
        [*command, "--native", topics.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_followed_table_goes_on_with_its_updates(topics: Shell, topic: str) -> None:
    put(topics, topic, (b"a", b"1"))
    with following(topics, topic) as process:
        assert process.stdout is not None
        head = [process.stdout.readline() for _ in range(2)]
        assert ["KEY", '"a"'] == [line.split()[0] for line in head]
        put(topics, topic, (b"a", b"2"), (b"a", None))
        assert '"a"  "2"  1  1970-01-01 00:00:00.000+00:00\n' == process.stdout.readline()
        assert '"a"  -  -  -\n' == process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(HANG_SECONDS)


def test_followed_table_is_a_document_in_each_line_and_ends_with_its_topic(
    topics: Shell, topic: str
) -> None:
    put(topics, topic, (b"a", b"1"))
    with following(topics, topic, "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "1" == json.loads(process.stdout.readline())["value"]
        put(topics, topic, (b"b", None))
        assert {"key": "b", "value": None} == json.loads(process.stdout.readline())
        topics("delete", topic)
        assert 2 == process.wait(HANG_SECONDS)
        assert 1 == len(process.stderr.read().splitlines())


def test_progress_is_one_line_that_disappears() -> None:
    out = io.StringIO()
    bar = ProgressBar(out, 2_000)
    for count in (1, 2, 1_000, 2_500):
        bar.show(count)
    bar.clear()
    lines = out.getvalue().split("\r")
    assert ["  0%", " 50%", "100%"] == [line[33:37] for line in lines[1:4]]
    assert "[###############               ]  50% of 2,000 records" == lines[2]
    assert [" " * len(lines[3]), ""] == lines[4:]
    ProgressBar(out, 0).clear()
    assert lines == out.getvalue().split("\r")
