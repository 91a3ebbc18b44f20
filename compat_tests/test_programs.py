"""Clients in Go, JavaScript and Rust: the same small program for each, see compat_tests/programs.

What a program sends is read by librdkafka, what it reads was sent by librdkafka.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from compat_tests import programs
from compat_tests.conftest import MakeTopic, run_tool
from compat_tests.deadlines import WAIT_S, wait_until
from compat_tests.records import CODECS, FIRST_TIMESTAMP_MS, STEP_MS, Sample
from compat_tests.test_confluent_kafka import consuming, receive, send_all

pytestmark = pytest.mark.slow

COUNT = 100
GO = ("franz-go", "sarama", "segmentio-kafka-go")
OTHERS = ("kafkajs", "rdkafka-rust")
# kafkajs needs further libraries for the other codecs.
CLIENT_CODECS = [
    *((client, codec) for client in (*GO, "rdkafka-rust") for codec in CODECS),
    *(("kafkajs", codec) for codec in ("none", "gzip")),
]
TRANSACTIONAL = ("franz-go", "sarama", *OTHERS)


@pytest.fixture(scope="session")
def bootstrap(bootstrap: str) -> str:
    """The address of one server; the clients find the others."""
    return bootstrap.partition(",")[0]


def of_clients(names: tuple[str, ...]) -> pytest.MarkDecorator:
    """Run a test with each of the clients."""
    marked = [pytest.param(name, marks=pytest.mark.peer(name)) for name in names]
    return pytest.mark.parametrize("client", marked)


def of_codecs() -> pytest.MarkDecorator:
    """Run a test with each client and each codec that it has."""
    marked = [pytest.param(*each, marks=pytest.mark.peer(each[0])) for each in CLIENT_CODECS]
    return pytest.mark.parametrize(("client", "codec"), marked)


def run(client: str, *task: str, expect: int = 0) -> list[list[str]]:
    """Let a program do a task; give the cells of the lines that it printed."""
    printed = run_tool([*programs.client_command(client), *task], stdin="", expect=expect)
    return [line.split("\t") for line in printed.splitlines()]


def made(prefix: str, count: int = COUNT) -> list[Sample]:
    """The records that a program makes."""
    return [
        Sample(
            key=f"key-{i % 10}".encode(),
            value=f"{prefix}-{i}".encode(),
            headers=(("index", str(i).encode()),),
            timestamp_ms=FIRST_TIMESTAMP_MS + i * STEP_MS,
        )
        for i in range(count)
    ]


def content(records: list[Sample]) -> list[tuple[object, ...]]:
    """What a record is but for its time."""
    return [(each.key, each.value, each.headers) for each in records]


def received_content(messages: list[Message]) -> list[tuple[object, ...]]:
    """The same of what librdkafka received."""
    return [(each.key(), each.value(), tuple(each.headers() or ())) for each in messages]


def lines(records: list[Sample], first_offset: int = 0) -> list[list[str]]:
    """How a program shows records of partition 0."""
    return [
        ["0", str(offset), *(part.decode() for part in (r.key or b"", r.value or b"")), index]
        for offset, r in enumerate(records, first_offset)
        for index in [r.headers[0][1].decode()]
    ]


@of_codecs()
@pytest.mark.feature("produce, {codec}: keys, values, headers; read by librdkafka")
def test_produced_records_are_read(
    *, bootstrap: str, make_topic: MakeTopic, group: str, client: str, codec: str
) -> None:
    name = make_topic()
    run(client, "produce", bootstrap, name, str(COUNT), codec)
    with consuming(bootstrap, name, group=group) as consumer:
        received = receive(consumer, COUNT)
    assert content(made("value")) == received_content(received)


@of_codecs()
@pytest.mark.feature("group: read librdkafka's {codec}, commit, resume")
def test_group_reads_commits_and_resumes(
    *, bootstrap: str, make_topic: MakeTopic, group: str, client: str, codec: str
) -> None:
    name, records = make_topic(), made("value")
    send_all(bootstrap, name, records, compression_type=codec, batch_num_messages=30)
    first = run(client, "consume", bootstrap, name, "40", group)
    second = run(client, "consume", bootstrap, name, "60", group)
    assert lines(records[:40]) == first
    assert lines(records[40:], 40) == second


@of_clients(GO + OTHERS)
@pytest.mark.feature("group: two members share, one takes over")
def test_two_members_share_a_group(
    bootstrap: str, make_topic: MakeTopic, group: str, client: str, tmp_path: Path
) -> None:
    name = make_topic(partitions=4)
    shares: dict[str, int] = {}

    def is_shared(*expected: int) -> bool:
        shares.clear()
        shares.update(partitions_of_members(bootstrap, group))
        return sorted(shares.values()) == list(expected)

    with ExitStack() as stack:
        stack.enter_context(member(client, bootstrap, name, group, tmp_path / "first"))
        wait_until(lambda: is_shared(4), f"one member: {shares}")
        with member(client, bootstrap, name, group, tmp_path / "second"):
            wait_until(lambda: is_shared(2, 2), f"two members: {shares}")
        wait_until(lambda: is_shared(4), f"one member again: {shares}")


@contextmanager
def member(
    client: str, bootstrap: str, topic: str, group: str, log: Path
) -> Iterator[Popen[bytes]]:
    """A program that reads for as long as it is wanted, and leaves the group at its end."""
    task = ("consume", bootstrap, topic, "1000000", group)
    with programs.running([*programs.client_command(client), *task], log) as process:
        yield process
        process.send_signal(signal.SIGTERM)


def partitions_of_members(bootstrap: str, group: str) -> dict[str, int]:
    """How many partitions each member of a group has."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(WAIT_S)
    return {
        one.member_id: len(one.assignment.topic_partitions) if one.assignment else 0
        for one in described.members
    }


@of_clients(TRANSACTIONAL)
@pytest.mark.feature("transactions: commit and abort")
def test_transactions_keep_what_was_committed(
    bootstrap: str, make_topic: MakeTopic, group: str, client: str
) -> None:
    name = make_topic()
    run(client, "transact", bootstrap, name, str(COUNT))
    kept = made("kept") + made("later")
    with consuming(bootstrap, name, group=group, isolation_level="read_committed") as consumer:
        assert content(kept) == received_content(receive(consumer, 2 * COUNT))
    shown = run(client, "consume", bootstrap, name, str(2 * COUNT), f"{group}-own")
    assert [line[3] for line in shown] == [(one.value or b"").decode() for one in kept]


@of_clients(TRANSACTIONAL)
@pytest.mark.feature("exactly once: copied with its offsets in transactions")
def test_copy_with_offsets_is_exact(
    bootstrap: str, make_topic: MakeTopic, group: str, client: str
) -> None:
    source, target, records = make_topic(partitions=2), make_topic(), made("value")
    send_all(bootstrap, source, records[:50], 0)
    send_all(bootstrap, source, records[50:], 1)
    for count in ("30", "70"):
        run(client, "copy", bootstrap, source, count, group, target)
    with consuming(bootstrap, target, group=group, isolation_level="read_committed") as consumer:
        received = receive(consumer, COUNT)
        assert not consumer.consume(1, timeout=0.5)
    assert sorted(content(records)) == sorted(received_content(received))
