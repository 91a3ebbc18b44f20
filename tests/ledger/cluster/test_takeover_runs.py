"""Owners that are killed or paused between any two requests, with faults at every one of them.

What was acknowledged is there, with one value per entry; what was not is there as a whole or not at
all. Each seed is one run; it is printed when it fails. More of them: KLEDGER_CLUSTER_SEEDS=5000.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest

from kledger.ledger.cluster import takeover, upkeep
from kledger.ledger.cluster.cluster_engine import ClusterEngine
from kledger.ledger.cluster.database import GroupId
from kledger.ledger.cluster.faulty_database import DatabaseFault
from kledger.ledger.cluster.group_log import EncodedGroup, GroupLog, _CommittedGroup
from kledger.ledger.cluster.object_format import ObjectFooter
from kledger.ledger.cluster.upkeep import Upkeep
from kledger.ledger.cluster.wal_gc_plan import plan_forgetting
from kledger.ledger.cluster.wal_index import WalIndex
from kledger.ledger.cluster.wal_plan import WalLimits
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.errors import StorageError, StorageWriteFailed, SyncFailed
from tests.ledger.cluster.model_objects import ObjectFault
from tests.ledger.cluster.words import OBJECTS, ModelCluster

SEEDS = int(os.environ.get("KLEDGER_CLUSTER_SEEDS", "60"))
MIXED = WalLimits(inline_group_bytes_max=60)


class Killed(BaseException):
    """The process has ended."""


@dataclass
class Content:
    """What a store has: entries by ledger, and rows."""

    entries: dict[int, list[bytes]] = field(default_factory=dict)
    rows: dict[bytes, bytes] = field(default_factory=dict)

    def after(self, group: CommitGroup) -> "Content":
        entries = {ledger: [*known] for ledger, known in self.entries.items()}
        for ledger, entry_id, data in group.entries:
            known = entries.setdefault(ledger, [])
            assert entry_id == len(known)
            known.append(bytes(data))
        for ledger in group.drops:
            entries.pop(ledger, None)
        rows = dict(self.rows)
        for key, value in group.rows:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        return Content(entries, rows)

    @classmethod
    def of(cls, engine: ClusterEngine, ledgers: int) -> "Content":
        found = cls(rows=dict(engine.scan(b"", b"\xff")))
        for ledger in range(ledgers):
            count = engine.last_entry(ledger) + 1
            entries: list[bytes] = []
            while len(entries) < count:
                read = engine.read(ledger, len(entries), count - 1, 1 << 20)
                entries += map(bytes, read)
            if entries:
                found.entries[ledger] = entries
        return found


class TakeoverRun:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        limits = self.random.choice((WalLimits(), OBJECTS, MIXED))
        self.cluster = ModelCluster(limits=limits, cached=self.random.random() < 0.5)
        self.cluster.object_fault = self.object_fault
        self.cluster.database_fault = self.database_fault
        self.content = Content()
        self.unknown: Content | None = None
        self.ledgers = 3  # ids given out; the last three are in use
        self.number = 0
        self.is_faulty = False
        self.interrupt_in = -1
        self.interruption: Callable[[], None] = lambda: None

    def go(self) -> None:
        for _ in range(self.random.randrange(2, 6)):
            engine = self.take_over()
            self.interrupt_in = self.random.choice((-1, self.random.randrange(60)))
            self.interruption = self.random.choice((self.kill, self.pause))
            self.is_faulty = True
            try:
                for _ in range(self.random.randrange(25)):
                    self.act(engine)
            except (Killed, SyncFailed):
                pass
            finally:
                self.is_faulty, self.interrupt_in = False, -1
        self.rest(self.take_over())

    # What owners do

    def take_over(self) -> ClusterEngine:
        engine = self.cluster.own()
        if self.random.random() < 0.5:
            self.cluster.run_late()
        found = Content.of(engine, self.ledgers)
        if self.unknown is not None and found == self.unknown:
            self.content = self.unknown
        self.unknown = None
        assert self.content == found
        return engine

    def act(self, engine: ClusterEngine) -> None:
        dice = self.random.random()
        self.cluster.bucket.now_ms += self.random.choice((0, 10, 500, 40_000))
        if dice < 0.6:
            self.commit(engine)
        elif dice < 0.8:
            engine.upkeep.step()
        elif dice < 0.9:
            engine.upkeep.heartbeat()
        else:
            self.compare(engine)

    def compare(self, engine: ClusterEngine) -> None:
        """Read everything; what an owner that was fenced reads is old, so it is not compared."""
        before = self.content
        with suppress(StorageError):  # a failure is no wrong answer
            found = Content.of(engine, self.ledgers)
            assert found == before or engine.epoch < self.cluster.tables.describe().epoch

    def commit(self, engine: ClusterEngine) -> None:
        group = self.group()
        after = self.content.after(group)
        before, self.unknown = self.content, after
        try:
            engine.commit(group, sync=True)
        except StorageWriteFailed:
            self.unknown = None
            return
        assert self.content is before, "an owner that was fenced has acknowledged"
        self.content, self.unknown = after, None
        engine.index(group)

    def group(self) -> CommitGroup:
        random, group = self.random, CommitGroup()
        in_use = range(self.ledgers - 3, self.ledgers)
        for ledger in random.sample(in_use, random.randrange(3)):
            known = len(self.content.entries.get(ledger, ()))
            for entry_id in range(known, known + random.randrange(1, 4)):
                self.number += 1
                group.entries.append((ledger, entry_id, b"%d." % self.number * random.randrange(9)))
        for _ in range(random.randrange(3)):
            value = random.choice((None, b"%d" % random.randrange(1000)))
            group.rows.append((random.choice((b"a", b"b", b"c")), value))
        if random.random() < 0.1:
            group.drops.append(self.ledgers - 3)
            self.ledgers += 1
        return group

    # Faults

    def object_fault(self, request: str) -> ObjectFault:
        self.maybe_interrupt()
        if not self.is_faulty or self.random.random() < 0.8:
            return ObjectFault.NONE
        fault: ObjectFault = self.random.choice([*ObjectFault])
        return fault

    def database_fault(self, call: str) -> DatabaseFault:
        self.maybe_interrupt()
        if self.is_faulty and self.random.random() < 0.2:
            self.cluster.run_late()
        if not self.is_faulty or self.random.random() < 0.8:
            return DatabaseFault.NONE
        fault: DatabaseFault = self.random.choice([*DatabaseFault])
        return fault

    def maybe_interrupt(self) -> None:
        self.interrupt_in -= 1
        if self.interrupt_in == 0:
            self.interruption()

    def kill(self) -> None:
        raise Killed

    def pause(self) -> None:
        """Another owner comes, works and goes, or stays, while this one stands still."""
        was_faulty, self.is_faulty = self.is_faulty, False
        other = self.take_over()
        for _ in range(self.random.randrange(6)):
            self.commit(other)
            self.cluster.bucket.now_ms += self.random.choice((0, 40_000))
            other.upkeep.step()
        assert self.content == Content.of(other, self.ledgers)
        self.is_faulty = was_faulty

    # The end

    def rest(self, engine: ClusterEngine) -> None:
        """Without faults, everything ends, and nothing is left that no group names."""
        self.cluster.run_late()
        for _ in range(120):
            self.cluster.bucket.now_ms += 31_000
            engine.upkeep.heartbeat()
            engine.upkeep.step()
        self.cluster.objects.wait((), 60_000)
        assert set(self.cluster.bucket.objects) == self.cluster.referenced()
        assert self.content == Content.of(engine, self.ledgers)
        live = sum(map(len, self.content.entries.values()))
        assert bool(live) == bool(self.cluster.bucket.objects)
        assert self.content == Content.of(self.cluster.own(), self.ledgers)


@pytest.mark.parametrize(
    "start", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(20, SEEDS, 20))]
)
def test_nothing_acknowledged_is_lost(start: int) -> None:
    for seed in range(start, start + 20):
        try:
            TakeoverRun(seed).go()
        except Exception as error:
            raise AssertionError(f"seed {seed} broke: {error!r}") from error


def forget_at_once(upkeep: Upkeep) -> None:
    """Forget what is unused now, though stored rows of the index may name it."""
    upkeep._unused = upkeep._log.ask(lambda index: plan_forgetting(index.files, index.newest))
    FORGET(upkeep)


def acknowledge_first(log: GroupLog, group: CommitGroup, encoded: EncodedGroup | None) -> None:
    """Take a failed commit for one that was answered."""
    try:
        COMMIT(log, group, encoded)
    except SyncFailed:
        log._committed.append(_CommittedGroup(group, GroupId(1, 1), encoded))


FORGET, COMMIT = Upkeep._forget, GroupLog.commit
MISTAKES: dict[str, tuple[object, str, object]] = {
    "a group is forgotten while rows name it": (Upkeep, "_forget", forget_at_once),
    "a commit is acknowledged without an answer": (GroupLog, "commit", acknowledge_first),
    "an append that is replayed counts twice": (WalIndex, "last_entry", lambda _index, _ledger: -1),
    "a dropped ledger stays": (WalIndex, "_drop", lambda _index, _ledger: None),
    "footers begin after the newest group": (
        takeover,
        "decode_footer",
        lambda *_: ObjectFooter([]),
    ),
    "PUTs without a commit stay": (upkeep, "plan_sweep", lambda *_, **__: []),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_planted_mistakes_are_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever breaks first
        run_some(range(150))


def run_some(seeds: range) -> None:
    for seed in seeds:
        TakeoverRun(seed).go()
