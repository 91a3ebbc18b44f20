"""ListOffsets against Apache Kafka's own broker: the same batches, the same questions.

Rule: an answer of kledger is right when the broker of the version it speaks for gives the same; a
plain scan of the records says so as well, so that a test does not pass because both are empty.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, TypeAlias

import pytest

from compat_tests.conftest import create_topic
from compat_tests.raw_client import Found, RawClient, leader_client
from compat_tests.records import CODECS, FIRST_TIMESTAMP_MS
from compat_tests.servers import ApacheKafkaServer, ServerProcess
from kledger.batches.builder import NewRecord, build_batch

pytestmark = pytest.mark.peer("kafka-broker")
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
SPECIAL = (LATEST, EARLIEST, MAX_TIMESTAMP, -4, -5, -6, -7)
SPREAD_MS = 2_000
NO_TIME = -1
NOTHING = NO_TIME, -1


class Pair(NamedTuple):
    """A connection to the leader in the server under test, and one to the broker.

    The broker's first leader epoch is 0.
    """

    ours: RawClient
    theirs: RawClient
    our_epoch: int


MakeLog: TypeAlias = "Callable[..., Log]"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The reference beside the server under test."""
    with ApacheKafkaServer(tmp_path_factory.mktemp("broker")) as running:
        yield running.bootstrap


@pytest.fixture
def make_log(server: ServerProcess, broker: str, topic: str) -> Iterator[MakeLog]:
    """Create the test's topic on both, with configs whose keys have underscores."""
    with ExitStack() as stack:

        def make(**configs: str) -> Log:
            ours, theirs = (
                stack.enter_context(created_topic(each, topic, configs))
                for each in (server.bootstrap, broker)
            )
            return Log(Pair(ours, theirs, leader_epoch(ours, topic)), topic)

        yield make


def leader_epoch(client: RawClient, topic: str) -> int:
    """Return the leader epoch of a new topic; in a cluster it is the epoch of its node."""
    return client.list_offsets(topic, [LATEST])[0].leader_epoch


@contextmanager
def created_topic(server: str, name: str, configs: dict[str, str]) -> Iterator[RawClient]:
    """Create a topic, and connect to its leader."""
    create_topic(server, name, 1, configs)
    with leader_client(server, name) as client:
        yield client


class Log:
    """The same log on both servers, and a list of what is in it."""

    def __init__(self, pair: Pair, name: str) -> None:
        """Begin with an empty topic on both."""
        self._pair = pair
        self._name = name
        self.times: list[int] = []
        self.log_start = 0

    def append(self, times: list[int], codec: int) -> None:
        """Produce one batch to both."""
        records = [NewRecord(b"v" * 20, key=b"k", timestamp=each) for each in times]
        batch = build_batch(records, codec=codec)
        for client in self._clients:
            assert client.produce(self._name, batch)[:2] == (0, len(self.times))
        self.times += times

    def delete_before(self, offset: int) -> None:
        """Move the log start on both."""
        for client in self._clients:
            assert client.delete_records(self._name, offset) == (offset, 0)
        self.log_start = offset

    def check(self, times: list[int]) -> None:
        """Ask both for every time, and for what stands for a place."""
        ours, theirs = self._answers(times)
        assert list(zip(times, theirs, strict=True)) == list(zip(times, ours, strict=True))
        assert [self._scan(each) for each in times] == [each[1:3] for each in ours]
        ours, theirs = self._answers(SPECIAL)
        newest = SPECIAL.index(MAX_TIMESTAMP)
        if 0 <= theirs[newest].offset < self.log_start:
            # The broker names a record that was deleted; see docs/SKIPPED.md.
            kept = self._scan(MAX_TIMESTAMP)
            theirs[newest] = Found(0, *kept, -1 if kept == NOTHING else 0)
        assert dict(zip(SPECIAL, theirs, strict=True)) == dict(zip(SPECIAL, ours, strict=True))
        assert ours[newest][1:3] == self._scan(MAX_TIMESTAMP)

    @property
    def _clients(self) -> tuple[RawClient, RawClient]:
        return self._pair.ours, self._pair.theirs

    def _answers(self, times: Sequence[int]) -> list[list[Found]]:
        """Give those of both, with leader epochs that begin at 0."""
        ours, theirs = (client.list_offsets(self._name, times) for client in self._clients)
        return [[from_epoch(self._pair.our_epoch, each) for each in ours], theirs]

    def _scan(self, time: int) -> tuple[int, int]:
        """Timestamp and offset of the record, from the list."""
        alive = list(enumerate(self.times))[self.log_start :]
        if time == MAX_TIMESTAMP:
            time = max((each for _, each in alive), default=0)
        return next(((each, at) for at, each in alive if each >= time), NOTHING)


def from_epoch(first: int, found: Found) -> Found:
    """Give an answer with a leader epoch that is counted from the first one; -1 is none."""
    return (
        found if found.leader_epoch < 0 else found._replace(leader_epoch=found.leader_epoch - first)
    )


def fill(log: Log, source: random.Random, batches: int, *, is_sorted: bool = False) -> None:
    """Append batches of any codec and size, with times in no order, some with none at all."""
    for index in range(batches):
        count = source.choice((1, 1, 2, 5, 40))
        shift = index * SPREAD_MS // batches
        around = [shift, shift] if is_sorted else [0, SPREAD_MS]
        times = [FIRST_TIMESTAMP_MS + source.randint(*around) for _ in range(count)]
        if not is_sorted and source.random() < 0.1:
            times = [NO_TIME] * count
        log.append(times, source.randrange(len(CODECS)))


def questions(source: random.Random, count: int) -> list[int]:
    """Times before, between and behind the records."""
    edges = [0, FIRST_TIMESTAMP_MS - 1, FIRST_TIMESTAMP_MS + SPREAD_MS + 1]
    inside = [FIRST_TIMESTAMP_MS + source.randint(0, SPREAD_MS) for _ in range(count)]
    return edges + inside


@pytest.mark.feature("the same answers to ListOffsets: any times, codecs, DeleteRecords")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_answer_is_the_brokers(make_log: MakeLog, seed: int) -> None:
    source = random.Random(seed)
    log = make_log()
    log.check(questions(source, 2))
    fill(log, source, 60)
    log.check(questions(source, 60))
    for _ in range(4):
        log.delete_before(source.randint(log.log_start, len(log.times)))
        log.check(questions(source, 20))
        fill(log, source, 10)
    log.check(questions(source, 60))
    log.delete_before(len(log.times))
    log.check(questions(source, 2))


@pytest.mark.feature("the same answers to ListOffsets: many segments")
@pytest.mark.parametrize("is_sorted", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_answers_across_segments_are_the_brokers(make_log: MakeLog, is_sorted: bool) -> None:
    source = random.Random(3)
    log = make_log(internal_segment_bytes="4000")
    fill(log, source, 120, is_sorted=is_sorted)
    log.check(questions(source, 100))


@pytest.mark.feature("the same answers to ListOffsets: records without a time")
def test_records_without_a_time_are_found_by_no_time(make_log: MakeLog) -> None:
    log = make_log()
    log.append([NO_TIME, NO_TIME], 0)
    log.check([0, FIRST_TIMESTAMP_MS])
    log.append([NO_TIME, FIRST_TIMESTAMP_MS], 4)
    log.check([0, FIRST_TIMESTAMP_MS, FIRST_TIMESTAMP_MS + 1])


@pytest.mark.feature("the same answers to ListOffsets: times given by the log")
def test_times_of_the_log_are_answered_alike(
    server: ServerProcess, broker: str, topic: str
) -> None:
    """The two clocks differ, so each server is compared with the times that it gave itself."""
    configs = {"message_timestamp_type": "LogAppendTime"}
    for address in (server.bootstrap, broker):
        with created_topic(address, topic, configs) as client:
            epoch = leader_epoch(client, topic)
            check_times_of_the_log(client, topic, epoch, random.Random(4))


def check_times_of_the_log(
    client: RawClient, topic: str, epoch: int, source: random.Random
) -> None:
    """Compare the times of one server's log with its answers."""
    given: list[tuple[int, int]] = []
    for index in range(30):
        records = [NewRecord(b"v", timestamp=FIRST_TIMESTAMP_MS)] * source.choice((1, 3, 9))
        done = client.produce(topic, build_batch(records, codec=index % len(CODECS)))
        assert done.error_code == 0
        given.append((done.log_append_time_ms, done.base_offset))
    newest = max(time for time, _ in given)
    times = [each for time, _ in given for each in (time - 1, time)]
    expected = [next(pair for pair in given if pair[0] >= time) for time in [*times, newest]]
    found = client.list_offsets(topic, [*times, MAX_TIMESTAMP])
    assert [(0, *each, epoch) for each in expected] == found
    assert client.list_offsets(topic, [newest + 1]) == [(0, NO_TIME, -1, -1)]
