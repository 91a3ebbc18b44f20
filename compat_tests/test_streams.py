"""Kafka Streams: an everyday word count, exactly once, with state in a changelog.

The program is compat_tests/programs/java; it regroups, so it has two internal topics.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest
from confluent_kafka.admin import AdminClient

from compat_tests import programs
from compat_tests.conftest import MakeTopic, Tool
from compat_tests.deadlines import PROGRAM_S, WAIT_S, rounds, wait_until
from compat_tests.records import FIRST_TIMESTAMP_MS, STEP_MS, Sample
from compat_tests.test_confluent_kafka import consuming, send_all

pytestmark = [pytest.mark.peer("kafka-streams"), pytest.mark.slow]

PARTITIONS = 3
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
    bootstrap: str, application: str, source: str, target: str, folder: Path
) -> Iterator[Popen[bytes]]:
    """The program, running; its state is in `folder`."""
    folder.mkdir()
    task = (bootstrap, application, source, target, str(folder / "state"))
    quick = ("producer.transaction.timeout.ms=6000",)
    command = programs.java_command("WordCount", *task, *quick)
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
