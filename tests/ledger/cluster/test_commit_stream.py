"""The stream of commits over a database whose connections die, and whose statements run late."""

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from kledger.ledger.cluster.commit_stream import PAUSES_S, CommitStream, StreamStopped
from kledger.ledger.cluster.database import (
    Change,
    CommitsLost,
    DatabaseUnavailable,
    GroupId,
    SessionFenced,
    SessionId,
)
from kledger.ledger.cluster.faulty_database import DatabaseFault, FaultyDatabase
from kledger.ledger.cluster.memory_database import MemoryDatabase
from tests.ledger.cluster.database_words import broker, groups, inline, owner, put, rows

OWNERS = 4
COMMITS = 12


class Plan:
    """The faults of the next calls, in order; afterwards there are none."""

    def __init__(self, *faults: DatabaseFault) -> None:
        self.faults = list(faults)
        self.before: Callable[[], None] = lambda: None

    def __call__(self, _method: str) -> DatabaseFault:
        self.before()
        return self.faults.pop(0) if self.faults else DatabaseFault.NONE


@pytest.fixture
def memory() -> MemoryDatabase:
    made = MemoryDatabase()
    made.create(cluster_id="test-cluster", store="memory://")
    return made


def stream_of(
    memory: MemoryDatabase,
    database: FaultyDatabase,
    session: SessionId,
    *,
    now_ms: Callable[[], int] = lambda: 0,
    wait_s: Callable[[float], bool] | None = lambda _: False,
) -> CommitStream:
    acquired = memory.acquire(session)
    assert acquired is not None
    return CommitStream(
        database, session, acquired, acquired_at_ms=now_ms(), now_ms=now_ms, wait_s=wait_s
    )


@pytest.mark.parametrize("fault", [DatabaseFault.LOST, DatabaseFault.ANSWER_LOST])
@pytest.mark.parametrize("barriers_lost", range(3))
def test_change_is_there_once_whatever_was_lost(
    memory: MemoryDatabase, fault: DatabaseFault, barriers_lost: int
) -> None:
    stream = stream_of(
        memory, FaultyDatabase(memory, Plan(fault, *[fault] * barriers_lost)), owner(memory)
    )
    first, second = (stream.commit(Change(group=inline(data))) for data in (b"a", b"b"))
    assert [(first, b"a"), (second, b"b")] == [
        (each.group_id, each.wal.inline) for each in groups(memory)
    ]
    assert 1 == stream.barrier_count
    assert (first == GroupId(1, 1)) == (fault is DatabaseFault.ANSWER_LOST)


def test_change_is_not_there_before_the_barrier_and_not_again_after_it(
    memory: MemoryDatabase,
) -> None:
    """The commit and a first barrier arrive when their outcome has been settled."""
    database = FaultyDatabase(memory, Plan(DatabaseFault.LATE, DatabaseFault.LATE))
    stream = stream_of(memory, database, owner(memory))
    first = stream.commit(Change(group=inline(b"a")))
    database.run_late(1)
    second = stream.commit(Change(group=inline(b"b")))
    database.run_late()
    third = stream.commit(Change(group=inline(b"c")))
    assert [first, second, third] == [each.group_id for each in groups(memory)]


def test_database_that_is_away_is_asked_again_with_longer_pauses(memory: MemoryDatabase) -> None:
    tries = len(PAUSES_S) + 3
    pauses: list[float] = []

    def wait(seconds: float) -> bool:
        pauses.append(seconds)
        return False

    database = FaultyDatabase(memory, Plan(*[DatabaseFault.AWAY] * tries))
    stream = stream_of(memory, database, owner(memory), wait_s=wait)
    assert GroupId(1, 1) == stream.commit(put(b"a"))
    assert [*PAUSES_S, *[PAUSES_S[-1]] * 3] == pauses
    assert 0 == stream.barrier_count


def test_stopping_ends_the_wait_for_a_database_that_is_unavailable(memory: MemoryDatabase) -> None:
    plan = Plan(*[DatabaseFault.AWAY] * 3)
    stream = stream_of(memory, FaultyDatabase(memory, plan), owner(memory), wait_s=None)
    plan.before = lambda: stream.stop() if len(plan.faults) == 1 else None
    with pytest.raises(StreamStopped):
        stream.commit(put(b"a"))
    assert [] == plan.faults


def test_stream_of_a_fenced_session_ends_for_good(memory: MemoryDatabase) -> None:
    session = owner(memory)
    stream = stream_of(memory, FaultyDatabase(memory, Plan()), session)
    stream.commit(put(b"a"))
    assert memory.fence(session, 1)
    for _ in range(2):
        with pytest.raises(SessionFenced):
            stream.commit(put(b"b"))
    assert {b"a": b"v"} == rows(memory)


def test_database_that_has_lost_answered_commits_ends_the_stream(memory: MemoryDatabase) -> None:
    session = owner(memory)
    stream = stream_of(memory, FaultyDatabase(memory, Plan()), session)
    stream.commit(put(b"a"))
    backup = memory.snapshot()
    stream.commit(put(b"b"))
    memory.restore(backup)
    for _ in range(2):
        with pytest.raises(CommitsLost, match="at commit 1, expected 2"):
            stream.commit(put(b"c"))


def test_loss_is_seen_by_a_barrier_too(memory: MemoryDatabase) -> None:
    plan = Plan()
    stream = stream_of(memory, FaultyDatabase(memory, plan), owner(memory))
    stream.commit(put(b"a"))
    backup = memory.snapshot()
    stream.commit(put(b"b"))
    memory.restore(backup)
    plan.faults = [DatabaseFault.LOST]
    with pytest.raises(CommitsLost):
        stream.commit(put(b"c"))


def test_answered_at_is_when_the_last_answered_commit_was_sent(memory: MemoryDatabase) -> None:
    """Nobody can have fenced the session before; the time of the answer would promise too much."""
    now_ms = 1_000
    plan = Plan()

    def pass_time() -> None:
        nonlocal now_ms
        now_ms += 10

    stream = stream_of(memory, FaultyDatabase(memory, plan), owner(memory), now_ms=lambda: now_ms)
    assert 1_000 == stream.answered_at_ms
    plan.before = pass_time
    stream.commit(put(b"a"))
    assert 1_000 == stream.answered_at_ms
    plan.faults = [DatabaseFault.ANSWER_LOST]
    stream.commit(put(b"b"))  # sent at 1,010, and its barrier at 1,020
    assert 1_020 == stream.answered_at_ms


FAULTS = (
    [DatabaseFault.NONE] * 6
    + [DatabaseFault.AWAY, DatabaseFault.LOST]
    + [DatabaseFault.ANSWER_LOST, DatabaseFault.LATE] * 2
)


class History:
    """Several owners, one after the other, with faults drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.memory = MemoryDatabase()
        self.memory.create(cluster_id="test-cluster", store="memory://")
        self.database = FaultyDatabase(self.memory, self.choose)
        self.answered: dict[GroupId, bytes] = {}
        self.refused: set[bytes] = set()
        self.unanswered: set[bytes] = set()
        self.calls_left = 0
        """Until the owner is fenced."""

    def choose(self, _method: str) -> DatabaseFault:
        """Let some late statements arrive, then choose what happens to the next one."""
        self.calls_left -= 1
        if self.calls_left == 0 and (seen := self.memory.observe()) is not None:
            assert self.memory.fence(*seen)
        while self.database.late and self.random.random() < 0.3:
            self.database.run_late(self.random.randrange(len(self.database.late)))
        return self.random.choice(FAULTS)

    def run_owner(self, number: int) -> None:
        """Commit until another session fences the owner, at any time, or to the end."""
        session = self.memory.begin_session(broker(number))
        self.calls_left = self.random.randrange(2 * COMMITS)
        stream = stream_of(self.memory, self.database, session)
        for index in range(COMMITS):
            data = b"%d-%d" % (number, index)
            try:
                self.answered[stream.commit(Change(group=inline(data)))] = data
            except _LookedLost:
                self.refused.add(data)
            except SessionFenced:
                self.unanswered.add(data)
                break
        else:
            self.memory.end_session(session)


def run_history(seed: int) -> None:
    history = History(seed)
    for number in range(OWNERS):
        history.run_owner(number)
    while history.database.late:
        history.database.run_late()
    found = {each.group_id: each.wal.inline for each in groups(history.memory)}
    assert history.answered.items() <= found.items(), "an answered commit is not there"
    others = [data for group_id, data in found.items() if group_id not in history.answered]
    assert history.refused.isdisjoint(found.values()), "a refused commit is there"
    assert set(others) <= history.unanswered, "a commit is there twice"
    assert len(others) <= OWNERS
    assert sorted(history.answered.values(), key=_order) == [
        history.answered[each] for each in sorted(history.answered)
    ], "commits changed their order"


def _order(data: bytes) -> tuple[int, ...]:
    return tuple(map(int, data.split(b"-")))


def test_owners_with_faults_lose_nothing_and_store_nothing_twice() -> None:
    run_histories()


@pytest.mark.slow
def test_owners_with_faults_lose_nothing_and_store_nothing_twice_in_many_runs() -> None:
    for seed in range(300, 20_000):
        run_history(seed)


class _LookedLost(Exception):
    """The stream of `PlainRead` says that a change is not there."""


class PlainRead(CommitStream):
    """Settles an unknown outcome by looking instead of by a barrier: the mistake to be found."""

    def _settle(self, unknown: int) -> bool:
        while True:
            with suppress(DatabaseUnavailable):
                seen = self._database.observe()
                if seen is not None and seen.seq >= unknown:
                    self._seq = unknown
                    return True
                raise _LookedLost


def run_histories() -> None:
    for seed in range(300):
        run_history(seed)


def test_plain_read_in_place_of_a_barrier_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.CommitStream", PlainRead)
    with pytest.raises(AssertionError, match="a refused commit is there"):
        run_histories()
