"""Servers that divide the nodes of a cluster, in a simulator: nothing acknowledged is ever missing.

A seed that fails is replayed by `python -m tests.simulation --nodes --seed N --trace`. Known
mistakes are planted, and every one is caught within so many seeds.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from kledger.ledger.cluster import (
    memory_database,
    session_state,
    takeover,
    upkeep,
    wal_objects,
)
from kledger.ledger.cluster.commit_stream import CommitStream
from kledger.ledger.cluster.database import (
    AcquiredEpoch,
    DatabaseUnavailable,
    GroupId,
    SessionId,
    SessionState,
    session_closed,
)
from kledger.ledger.cluster.group_log import EncodedGroup, GroupLog, _CommittedGroup
from kledger.ledger.cluster.memory_database import MemoryDatabase
from kledger.ledger.cluster.object_format import ObjectFooter
from kledger.ledger.engine.base import Buffer, CommitGroup
from kledger.ledger.engine.errors import StorageWriteFailed, SyncFailed
from tests.simulation.nodes.processes import Process
from tests.simulation.nodes.run import NodeRun
from tests.simulation.nodes.storage import NodeStorage
from tests.simulation.planted import PlantedMistake, expect_caught, mistake_name
from tests.simulation.run import simulation
from tests.simulation.seeds import run_seed, run_seeds

SEEDS = 6
ALL_SEEDS = 2_000


def test_nodes_hold() -> None:
    with simulation():
        failures = [found for seed in range(SEEDS) if (found := run_seed(seed, NodeRun))]
    assert not failures, "\n\n".join(map(str, failures))


@pytest.mark.slow
def test_nodes_hold_for_many_seeds() -> None:
    seeds = range(SEEDS, ALL_SEEDS)
    failures = run_seeds(seeds, processes=os.cpu_count() or 1, make=NodeRun)
    assert not failures, "\n\n".join(map(str, failures))


def test_seed_replays() -> None:
    with simulation():
        runs = [NodeRun(1), NodeRun(1)]
        assert [None, None] == [each.go() for each in runs]
    assert runs[0].trace == runs[1].trace


def acquires_from_a_live_owner(
    database: MemoryDatabase, session: SessionId
) -> AcquiredEpoch | None:
    """A session becomes the owner although the last one was not closed."""
    tables = database._tables()
    mine = database._open(tables, session)
    if mine.state is SessionState.WAITING:
        tables.epoch += 1
        tables.owner = session
        mine.state, mine.epoch = SessionState.OPEN, tables.epoch
    return AcquiredEpoch(mine.epoch, mine.seq)


def acquires_the_same_epoch(database: MemoryDatabase, session: SessionId) -> AcquiredEpoch | None:
    """An owner has the epoch of the last one."""
    acquired = ACQUIRE(database, session)
    return None if acquired is None else acquired._replace(epoch=max(acquired.epoch - 1, 1))


def accepts_closed_sessions(
    database: MemoryDatabase, tables: memory_database._Tables, session: SessionId
) -> memory_database._Session:
    """A commit takes effect though its session was closed."""
    found = tables.sessions.get(session)
    if found is None:
        raise session_closed(session)
    return found


def looks_in_place_of_a_barrier(stream: CommitStream, unknown: int) -> bool:
    """A commit has failed if it is not there, though its statement may still run."""
    with suppress(DatabaseUnavailable):
        seen = stream._database.observe()
        if seen is not None and seen.seq >= unknown:
            stream._seq = unknown
            return True
    raise StorageWriteFailed("it is not there")


def acknowledges_without_an_answer(
    log: GroupLog, group: CommitGroup, encoded: EncodedGroup | None
) -> None:
    """A commit that failed counts as one that was answered."""
    try:
        COMMIT(log, group, encoded)
    except SyncFailed:
        log._committed.append(_CommittedGroup(group, GroupId(1, 1), encoded))


def sweeps_live_sessions(
    keys: Sequence[str], *, own_epoch: int, is_referenced: Callable[[str], bool]
) -> list[str]:
    """Objects are swept though the owner is about to commit them."""
    del own_epoch
    return [each for each in keys if not is_referenced(each)]


def sweeps_nothing(*_: object, **__: object) -> list[str]:
    """PUTs without a commit stay."""
    return []


def finds_nothing_in_footers(*_: object) -> ObjectFooter:
    """A takeover loads the stored index, and no group after it."""
    return ObjectFooter([])


def answers_without_the_standby(_: NodeStorage, __: object) -> bool:
    """A cancelled wait for the standby counts as an answer."""
    return True


def takes_truncated_bodies(data: Buffer, _key: str, _length: int) -> Buffer:
    """The bytes of a response are those that were asked for."""
    return data


def stands_still_during_sleep(process: Process) -> int:
    """An owner measures its deadline by CLOCK_MONOTONIC."""
    return BOOT_MS(process) - process.paused_us // 1000


BOOT_MS = Process.boot_ms
ACQUIRE, COMMIT = MemoryDatabase.acquire, GroupLog.commit
MISTAKES = (
    PlantedMistake(MemoryDatabase, "acquire", acquires_from_a_live_owner, seeds=40),
    PlantedMistake(MemoryDatabase, "acquire", acquires_the_same_epoch, seeds=5),
    PlantedMistake(MemoryDatabase, "_owner", accepts_closed_sessions, seeds=20),
    PlantedMistake(CommitStream, "_settle", looks_in_place_of_a_barrier, seeds=20),
    PlantedMistake(GroupLog, "commit", acknowledges_without_an_answer, seeds=20),
    PlantedMistake(upkeep, "plan_sweep", sweeps_live_sessions, seeds=20),
    PlantedMistake(upkeep, "plan_sweep", sweeps_nothing, seeds=20),
    PlantedMistake(takeover, "decode_footer", finds_nothing_in_footers, seeds=20),
    PlantedMistake(session_state, "CURRENT_FOR_MS", 3_600_000, seeds=60),
    PlantedMistake(session_state, "FENCE_AFTER_MS", 1_500, seeds=40),
    PlantedMistake(NodeStorage, "is_answered", answers_without_the_standby, seeds=60),
    PlantedMistake(wal_objects, "whole", takes_truncated_bodies, seeds=60),
    PlantedMistake(Process, "boot_ms", stands_still_during_sleep, seeds=60),
)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=mistake_name)
def test_a_planted_mistake_about_nodes_is_caught(
    mistake: PlantedMistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_caught(mistake, NodeRun, "--nodes", monkeypatch)
