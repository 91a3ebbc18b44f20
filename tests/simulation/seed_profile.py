"""Seed profile: the settings of one seed.

Rule: a seed draws its settings first, and many of them are extreme: no cache or a large one, slow
threads or quick ones, one kind of fault or none. Similar runs find the same bugs.
Must not know: what happens in a run.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeVar
from unittest.mock import patch

from kledger.ledger import ManagedLedgerConfig, OffloadPolicies, StoreConfig
from tests.simulation.schedule import Pace
from tests.simulation.tier import URL

Choice = TypeVar("Choice")

NAMES = ("a", "b", "c")
FAULT_RATES = {
    "write": (0.0, 0.0, 0.02, 0.08, 0.3),
    "sync": (0.0, 0.0, 0.0, 0.01),
    "index": (0.0, 0.0, 0.0, 0.004),
    "read": (0.0, 0.0, 0.05, 0.3),
    "lookup": (0.0, 0.0, 0.1),
    "checkpoint": (0.0, 0.0, 0.3),
    "completion": (0.0, 0.0, 0.01, 0.1),
    "listener": (0.0, 0.0, 0.1),
    "timer": (0.0, 0.3),
    "deliver": (0.0, 0.02, 0.3),
    "tier": (0.0, 0.0, 0.05, 0.3),
    "tier hang": (0.0, 0.0, 0.05),
}
SMALL_NUMBERS = {
    "kledger.runtime.containment.FAULTS_PER_SECOND": 1 << 30,  # none may be omitted
    "kledger.ledger.reads.cold_reads.REMEMBERED_READS_MAX": 6,
    "kledger.ledger.reads.cold_reads.RESIDENT_BYTES_PER_TICK": 100,
    "kledger.ledger.commits.committer.LAZY_ROWS_MAX": 6,
    "kledger.ledger.cursors.cursor_state.CHANGES_MAX": 4,
    "kledger.ledger.cursors.cursor_rows_state.CHANGE_BYTES_MIN": 200,
    "kledger.ledger.cursors.cursor_rows_state.CHANGE_ROWS_MAX": 3,
    "kledger.ledger.cursors.cursor_rows_state.SMALL_PARTS_MAX": 1,
    "kledger.ledger.cursors.cursor_rows_state.SPARE_PARTS": 2,
    "kledger.ledger.cursors.cursor_state.READ_GAP_MAX": 2,
    "kledger.ledger.cursors.cursor_writer.SNAPSHOT_RANGES_MAX": 2,
    "kledger.ledger.reads.entry_cache._FORGOTTEN_MIN": 3,
    "kledger.ledger.ledger_reader.STEPS_PER_TICK": 2,
    "kledger.ledger.ledger_reader.STEP_BYTES_MAX": 150,
    "kledger.ledger.ledger_reader.STEP_ENTRIES_MAX": 3,
    "kledger.ledger.recovery.COUNT_STEP_BYTES": 60,
    "kledger.ledger.recovery.SMALL_GROUP_BYTES": 250,
    "kledger.ledger.handle.compaction_writer.GROUP_BYTES": 150,
    "kledger.ledger.compacted_reader.READ_BYTES_MAX": 200,
    "kledger.ledger.offload.copy_deletions.DELETE_TIMEOUT_MS": 300,
    "kledger.ledger.offload.copy_deletions.LATE_ATTEMPTS_MAX": 1 << 30,  # none may be omitted
    "kledger.ledger.offload.copy_deletions.LATE_WRITES_MS": 1000,
    "kledger.ledger.offload.copy_deletions.PAGE_ROWS": 2,
    "kledger.ledger.offload.copy_deletions.RETRY_MS": 50,
    "kledger.ledger.offload.copy_deletions.RETRY_MS_MAX": 400,
    "kledger.ledger.offload.copy_reads.COPIES_OPEN_MAX": 2,
    "kledger.ledger.offload.copy_reads.READS_MAX": 3,
    "kledger.ledger.offload.copy_reads.READ_BYTES_MIN": 20,
    "kledger.ledger.offload.copy_reads.CLOSE_TIMEOUT_MS": 300,
    "kledger.ledger.handle.offloads.COPY_IDLE_MS": 500,
    "kledger.ledger.handle.write_tail_state.MARK_BYTES": 200,
    "kledger.ledger.handle.write_tail_state.MARK_ENTRIES": 5,
}
"""Constants of the ledger, so small that a short run reaches them."""


@contextmanager
def small_numbers() -> Iterator[None]:
    """Set the small constants."""
    with ExitStack() as stack:
        for name, number in SMALL_NUMBERS.items():
            stack.enter_context(patch(name, number))
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedProfile:
    """Attributes:
    names: the managed ledgers.
    lives: how often the process starts.
    steps: the number of actions in one life.
    calm: the probability of the idle check of the whole state.
    takeovers: the probability that another store takes over the engine.
    cancels: the probability that an operation is cancelled.
    shares: whether entries are record batches, and subscriptions share them.
    checkpoint_groups: groups between two checkpoints.
    resident: the probability that the page cache has the data of a read.
    favours: the weight of each action.
    """

    names: Sequence[str]
    lives: int
    steps: int
    calm: float
    takeovers: float
    cancels: float
    shares: bool
    pace: Pace
    store: StoreConfig
    fault_rates: dict[str, float]
    checkpoint_groups: int
    resident: float
    favours: dict[str, float]

    @classmethod
    def drawn(cls, random: Random, actions: Mapping[str, tuple[object, float]]) -> "SeedProfile":
        """Draw a profile. `actions`: the second value of each is its usual weight."""
        return cls(
            names=NAMES[: random.choice((1, 2, 2, 3))],
            lives=random.choice((2, 3, 3, 4)),
            steps=random.choice((20, 40, 70, 120)),
            calm=random.choice((0.01, 0.05, 0.2)),
            takeovers=random.choice((0.0, 0.0, 0.02)),
            cancels=random.choice((0.0, 0.0, 0.1, 0.3)),
            shares=random.random() < 0.4,
            pace=_pace(random),
            store=_store_config(random),
            fault_rates={name: random.choice(rates) for name, rates in FAULT_RATES.items()},
            checkpoint_groups=random.choice((3, 20, 10_000)),
            resident=random.choice((0.0, 0.0, 0.5, 1.0)),
            favours={
                name: usual * random.choice((0.1, 0.5, 1.0, 1.0, 4.0))
                for name, (_, usual) in actions.items()
            },
        )


def ledger_config(random: Random) -> ManagedLedgerConfig:
    """Draw the settings of a managed ledger: mostly small ledgers, mostly no retention."""
    max_rollover_ms = random.choice((-1, -1, 20, 200, 4000))
    min_rollover_ms = random.choice((-1, -1, 0, 10))
    inactive_rollover_ms = random.choice((-1, -1, -1, 5, 200))
    retention_ms = random.choice((-1, -1, -1, 0, 30, 1000))
    retention_bytes = random.choice((-1, -1, -1, 0, 100, 1000))
    return ManagedLedgerConfig(
        max_entries_per_ledger=random.choice((-1, 1, 2, 3, 4, 8, 20)),
        max_bytes_per_ledger=random.choice((-1, 1, 60, 300)),
        min_rollover_ms=min_rollover_ms,
        max_rollover_ms=max_rollover_ms,
        inactive_rollover_ms=inactive_rollover_ms,
        retention_ms=retention_ms,
        retention_bytes=-1 if retention_ms > 0 and not retention_bytes else retention_bytes,
        offload=OffloadPolicies(
            driver=random.choice((URL, URL, URL, None)),
            threshold_bytes=random.choice((-1, 0, 60, 300)),
            threshold_ms=random.choice((-1, -1, 0, 100)),
            deletion_lag_ms=random.choice((None, -1, 0, 50)),
            read_priority=random.choice(("tiered-first", "tiered-first", "bookkeeper-first")),
        ),
    )


def _pace(random: Random) -> Pace:
    quick, usual, slow, stalled = 30, 800, 8_000, 400_000
    works = (
        (quick,),
        (quick, usual),
        (usual,),
        (quick, usual, usual, slow),
        (usual, usual, usual, usual, stalled),
    )
    return Pace(callback_us=random.choice((5, 40, 300)), work_us=random.choice(works))


def _store_config(random: Random) -> StoreConfig:
    durability: Literal["fsync", "os"] = random.choice(("fsync", "fsync", "os"))
    return StoreConfig(
        durability=durability,
        cache_bytes=random.choice((0, 0, 500, 2_000, 1_000_000)),
        committer_queue_bytes_max=random.choice((50, 500, 1 << 20)),
        committer_queue_count_max=random.choice((3, 100_000)),
        cold_read_bytes_max=random.choice((1, 200, 1 << 20)),
        cold_reads_waiting_max=random.choice((0, 2, 10_000)),
        read_ahead_bytes_max=random.choice((0, 160, 1000, 1 << 20)),
        offload_parallel=random.choice((1, 2)),
        offload_read_bytes_max=random.choice((1, 200, 1 << 20)),
        offload_read_timeout_ms=300,
        cursor_persist_per_second=random.choice((None, None, None, 1, 20)),
        cursor_ranges_max=random.choice((0, 2, 4, 10_000, 10_000)),
    )
