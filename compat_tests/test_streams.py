"""Kafka Streams: an everyday word count, exactly once, with state in a changelog; tables.

The programs are in compat_tests/programs/java. The word count regroups, so it has two internal
topics; the tables are those of compacted topics, and have none.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from types import MappingProxyType

import pytest
from confluent_kafka.admin import AdminClient

from compat_tests import programs
from compat_tests.compacted_topics import compact, create_compacted, read_partition
from compat_tests.conftest import MakeTopic, Tool, create_topic
from compat_tests.deadlines import PROGRAM_S, WAIT_S, rounds, wait_until
from compat_tests.records import FIRST_TIMESTAMP_MS, STEP_MS, Sample
from compat_tests.secured_server import SecuredServer, of_listeners
from compat_tests.test_confluent_kafka import consuming, send_all

pytestmark = [pytest.mark.peer("kafka-streams"), pytest.mark.slow]

PARTITIONS = 3
TABLE_KEYS = 30
WORDS = ("delay", "carrier", "origin", "gate", "runway", "weather")


def lines(count: int, *, shift: int = 0) -> list[str]:
    """Lines of three words each."""
    return [
        " ".join(WORDS[(i * step + shift) % len(WORDS)] for step in (1, 2, 5)) for i in range(count)
    ]


def send_lines(bootstrap: str, topic: str, sent: list[str]) -> None:
    """Spread lines over the partitions."""
    for partition in range(PARTITIONS):
        samples = [
            Sample(
                key=None,
                value=line.encode(),
                headers=(),
                timestamp_ms=FIRST_TIMESTAMP_MS + index * STEP_MS,
            )
            for index, line in enumerate(sent[partition::PARTITIONS])
        ]
        send_all(bootstrap, topic, samples, partition)


def words_in(sent: list[str]) -> Counter[str]:
    """The counts that are right."""
    return Counter(word for line in sent for word in line.split(" "))


@contextmanager
def word_count(
    bootstrap: str,
    application: str,
    source: str,
    target: str,
    folder: Path,
    *,
    client: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Popen[bytes]]:
    """The program, running with further settings of its clients; its state is in `folder`."""
    folder.mkdir()
    task = (bootstrap, application, source, target, str(folder / "state"))
    settings = {"producer.transaction.timeout.ms": "6000"} | dict(client)
    pairs = [f"{key}={value}" for key, value in settings.items()]
    command = programs.java_command("WordCount", *task, *pairs)
    with programs.running(command, folder / "log") as process:
        yield process


class Counts:
    """What a reader of committed results sees of a word count."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        """Read a topic from its beginning."""
        self._bootstrap = bootstrap
        self._topic = topic

    def history(self) -> dict[str, list[int]]:
        """Every count that was committed for a word so far, in order."""
        seen: dict[str, list[int]] = {}
        committed = {"isolation_level": "read_committed", "enable_partition_eof": "true"}
        with consuming(self._bootstrap, self._topic, **committed) as consumer:
            ended: set[int | None] = set()
            for _ in rounds(f"the end of {self._topic}"):
                if len(ended) == PARTITIONS:
                    break
                for message in consumer.consume(500, timeout=1):
                    if message.error() is not None:
                        ended.add(message.partition())
                        continue
                    word, count = message.key() or b"", message.value() or b""
                    seen.setdefault(word.decode(), []).append(int.from_bytes(count, "big"))
        return seen

    def wait_for(self, expected: Counter[str]) -> dict[str, list[int]]:
        """Wait until the last counts are those, and give the history."""
        latest: dict[str, list[int]] = {}

        def is_there() -> bool:
            latest.clear()
            latest.update(self.history())
            return {word: counts[-1] for word, counts in latest.items()} == expected

        wait_until(is_there, f"{dict(expected)}, last seen {latest}", within_s=PROGRAM_S)
        return latest


@pytest.mark.feature("word count, exactly_once_v2: killed, its state back from the changelog")
def test_word_count_survives_a_kill(
    bootstrap: str, make_topic: MakeTopic, group: str, tmp_path: Path
) -> None:
    source, target = make_topic(partitions=PARTITIONS), make_topic(partitions=PARTITIONS)
    counts, first, second = Counts(bootstrap, target), lines(300), lines(300, shift=1)
    send_lines(bootstrap, source, first)
    with word_count(bootstrap, group, source, target, tmp_path / "one") as process:
        counts.wait_for(words_in(first))
        send_lines(bootstrap, source, second)
        process.send_signal(signal.SIGKILL)
    with word_count(bootstrap, group, source, target, tmp_path / "two"):
        history = counts.wait_for(words_in(first + second))
    for word, committed in history.items():
        assert committed == sorted(set(committed)), f"{word} was counted twice"


@of_listeners
@pytest.mark.feature("word count, exactly_once_v2: SASL_SSL with SCRAM, and mTLS")
def test_word_count_connects_with_tls(
    secured: SecuredServer, topic: str, group: str, listener: str, tmp_path: Path
) -> None:
    bootstrap, source, target = secured.open_address, f"{topic}-lines", f"{topic}-counts"
    for name in (source, target):
        create_topic(bootstrap, name, PARTITIONS, {})
    sent = lines(60)
    send_lines(bootstrap, source, sent)
    address, client = secured.addresses[listener], secured.java(listener)
    with word_count(address, group, source, target, tmp_path / "one", client=client):
        Counts(bootstrap, target).wait_for(words_in(sent))


@pytest.mark.feature("word count: internal topics, then streams-application-reset")
def test_application_reset_starts_anew(
    java: Tool, bootstrap: str, make_topic: MakeTopic, group: str, tmp_path: Path
) -> None:
    source, target = make_topic(partitions=PARTITIONS), make_topic(partitions=PARTITIONS)
    counts, sent = Counts(bootstrap, target), lines(60)
    send_lines(bootstrap, source, sent)
    with word_count(bootstrap, group, source, target, tmp_path / "one"):
        counts.wait_for(words_in(sent))
        internal = {f"{group}-counts-changelog", f"{group}-words-repartition"}
        assert internal == internal_topics(bootstrap, group)
    flags = ("--bootstrap-server", bootstrap, "--application-id", group, "--force")
    java("org.apache.kafka.tools.StreamsResetter", *flags, "--input-topics", source)
    assert set() == internal_topics(bootstrap, group)
    with word_count(bootstrap, group, source, target, tmp_path / "two"):
        wait_until(
            lambda: all(len(each) > 1 for each in repeats(counts.history()).values()),
            "every count a second time",
            within_s=PROGRAM_S,
        )
        history = counts.wait_for(words_in(sent))
    assert all(each[-1] == words_in(sent)[word] for word, each in history.items())


def internal_topics(bootstrap: str, application: str) -> set[str]:
    """The topics that Streams made for an application."""
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=WAIT_S).topics
    return {name for name in topics if name.startswith(f"{application}-")}


def repeats(history: dict[str, list[int]]) -> dict[str, list[int]]:
    """Per word, its last count as often as it was committed."""
    return {word: [one for one in counts if one == counts[-1]] for word, counts in history.items()}


@contextmanager
def table_join(
    bootstrap: str, application: str, topics: tuple[str, ...], folder: Path
) -> Iterator[None]:
    """The program that looks keys up in two tables, running; its state is in `folder`."""
    folder.mkdir()
    task = (bootstrap, application, *topics, str(folder / "state"))
    command = programs.java_command("TableJoin", *task, "topology.optimization=all")
    with programs.running(command, folder / "log"):
        yield


def table_samples(version: int) -> list[Sample]:
    """New values of the keys of a table; some keys go."""
    return [
        Sample(
            key=f"key-{number}".encode(),
            value=None if number % 9 == version else f"{version}.{number}".encode(),
            headers=(),
            timestamp_ms=FIRST_TIMESTAMP_MS + (version * TABLE_KEYS + number) * STEP_MS,
        )
        for number in range(TABLE_KEYS)
        if version == 0 or number % 3 != version
    ]


def fill_table(bootstrap: str, topic: str, partitions: int, version: int) -> None:
    """Write new values to a compacted table, and wait until the old ones have gone."""
    for partition in range(partitions):
        written = [
            one for one in table_samples(version) if partition_of(one, partitions) == partition
        ]
        send_all(bootstrap, topic, written, partition)
        compact(bootstrap, topic, partition=partition)


def partition_of(sample: Sample, partitions: int) -> int:
    """Give the partition of a key."""
    return int((sample.key or b"").removeprefix(b"key-")) % partitions


def ask_tables(bootstrap: str, topic: str, question: str) -> None:
    """Ask for every key."""
    for partition in range(PARTITIONS):
        asked = [
            Sample(
                key=one.key,
                value=question.encode(),
                headers=(),
                timestamp_ms=FIRST_TIMESTAMP_MS + 10 * TABLE_KEYS * STEP_MS,
            )
            for one in table_samples(0)
            if partition_of(one, PARTITIONS) == partition
        ]
        send_all(bootstrap, topic, asked, partition)


def expected_answers(
    question: str, table_versions: int, global_versions: int
) -> dict[bytes | None, str]:
    """The answers that are right after so many versions of the tables."""
    table, everywhere = latest_values(table_versions), latest_values(global_versions)
    return {key: f"{question}/{table[key]}/{everywhere[key]}" for key in table}


def latest_values(versions: int) -> dict[bytes | None, str]:
    """What a table has after its first versions, as a join shows it."""
    return {
        one.key: "null" if one.value is None else one.value.decode()
        for version in range(versions)
        for one in table_samples(version)
    }


def answers_to(bootstrap: str, topic: str, question: str) -> dict[bytes | None, str]:
    """The answers to a question so far, by key."""
    found = read_partition(bootstrap, topic, isolation="read_committed")
    answers = {one.key: (one.value or b"").decode() for one in found}
    return {key: answer for key, answer in answers.items() if answer.startswith(f"{question}/")}


@pytest.mark.feature("KTable and GlobalKTable of compacted topics, state folder deleted")
def test_tables_are_restored_from_compacted_topics(
    compacting_bootstrap: str, group: str, tmp_path: Path
) -> None:
    bootstrap = compacting_bootstrap
    asked, table, everywhere, answers = (
        f"{group}-{name}" for name in ("asked", "table", "global", "answers")
    )
    create_topic(bootstrap, asked, PARTITIONS, {})
    create_topic(bootstrap, answers, 1, {})
    create_compacted(bootstrap, table, PARTITIONS)
    create_compacted(bootstrap, everywhere)

    def wait_for_answers(question: str, expected: dict[bytes | None, str]) -> None:
        wait_until(
            lambda: len(answers_to(bootstrap, answers, question)) == len(expected),
            f"{len(expected)} answers to {question}",
            within_s=PROGRAM_S,
        )
        assert expected == answers_to(bootstrap, answers, question)

    fill_table(bootstrap, table, PARTITIONS, 0)
    fill_table(bootstrap, everywhere, 1, 0)
    topics = (asked, table, everywhere, answers)
    with table_join(bootstrap, group, topics, tmp_path / "one"):
        ask_tables(bootstrap, asked, "first")
        wait_for_answers("first", expected_answers("first", 1, 1))
    for version in (1, 2):
        fill_table(bootstrap, table, PARTITIONS, version)
    fill_table(bootstrap, everywhere, 1, 1)
    ask_tables(bootstrap, asked, "second")
    with table_join(bootstrap, group, topics, tmp_path / "two"):
        wait_for_answers("second", expected_answers("second", 3, 2))
    ask_tables(bootstrap, asked, "third")
    with table_join(bootstrap, group, topics, tmp_path / "three"):
        wait_for_answers("third", expected_answers("third", 3, 2))
    assert set(topics) == internal_topics(bootstrap, group), "no changelog beside them"
