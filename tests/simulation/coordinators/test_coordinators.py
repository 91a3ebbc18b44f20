"""Shards of coordinators in a simulator: what was acknowledged holds wherever they move.

A seed that fails is replayed by `python -m tests.simulation --coordinators --seed N --trace`. Known
mistakes are planted, and every one is caught within so many seeds.
"""

import os
from collections.abc import Iterable, Set

import pytest

from kledger.gateway.coordinator.coordinator_shards_state import Includes
from kledger.gateway.coordinator.groups.group_offsets import GroupOffsets
from kledger.gateway.coordinator.groups.group_shards import GroupShards
from kledger.gateway.coordinator.groups.group_table import GroupTable
from kledger.gateway.coordinator.shard_loader import ShardLoader
from kledger.gateway.coordinator.transactions.transaction_coordinator import (
    TransactionCoordinator,
)
from kledger.gateway.coordinator.transactions.txn_record import TxnRecord
from kledger.ledger.record_table import RecordChange
from kledger.offsets import OffsetStore, StoredOffsets
from tests.simulation.coordinators.run import CoordinatorRun
from tests.simulation.planted import PlantedMistake, expect_caught, mistake_name
from tests.simulation.seeds import run_seeds

SEEDS = 40
ALL_SEEDS = 2_000


def hold(seeds: range) -> None:
    failures = run_seeds(seeds, processes=os.cpu_count() or 1, make=CoordinatorRun)
    assert not failures, "\n\n".join(map(str, failures))


def test_shards_hold_wherever_they_move() -> None:
    hold(range(SEEDS))


@pytest.mark.slow
def test_shards_hold_for_many_seeds() -> None:
    hold(range(SEEDS, ALL_SEEDS))


async def forgets_what_is_being_written(shards: GroupShards, _: Includes) -> None:
    """A shard is given away while an acknowledgement is on its way."""


async def gives_away_steps(coordinator: TransactionCoordinator, _: Includes) -> None:
    """A transactional id is given away in the middle of a step."""
    await coordinator._parts.store.flush()


def lets_waiting_requests_wait(table: GroupTable, is_included: Includes) -> None:
    """Groups are dropped, and nobody answers their members."""
    for hosted in [each for each in table if is_included(each.group_id)]:
        del table._hosted[hosted.group_id]


def brings_groups_back(offsets: GroupOffsets, group_id: str) -> None:
    """The end of a write makes a group in a shard that was detached meanwhile."""
    if offsets._table.get(group_id) is None and offsets._offsets.topic_partitions(group_id):
        offsets._table.ensure(group_id)


def moves_without_pending_offsets(offsets: OffsetStore, is_included: Includes) -> StoredOffsets:
    """The offsets of open transactions stay behind."""
    committed, _ = right_read(offsets, is_included)
    return committed, ()


def forgets_groups_elsewhere(
    offsets: GroupOffsets, producer_id: int, groups: Set[str], *, is_commit: bool
) -> tuple[list[RecordChange], frozenset[str]]:
    """An outcome counts as complete when the groups that are here have it."""
    changes, _ = right_end(offsets, producer_id, groups, is_commit=is_commit)
    return changes, frozenset()


def ends_offsets_of_detached_shards(
    offsets: GroupOffsets, producer_id: int, groups: Set[str], *, is_commit: bool
) -> tuple[list[RecordChange], frozenset[str]]:
    """An outcome is written into groups that another broker may serve already."""
    return offsets._offsets.end(producer_id, groups, is_commit=is_commit), frozenset()


def leaves_prepared_transactions(
    coordinator: TransactionCoordinator, records: Iterable[TxnRecord]
) -> None:
    """Outcomes without markers wait for a restart."""


async def detaches_before_it_refuses(loader: ShardLoader, numbers: Set[int]) -> None:
    """Requests are accepted while the shard settles."""
    is_included = loader._shards.including(numbers)
    async with loader._moving:
        await loader._records.settle_shards(is_included)
        loader._shards.detach(numbers)
        loader._records.stop_shards(is_included)
        loader._records.unload_shards(is_included)


right_read = OffsetStore.read
right_end = GroupOffsets.end

MISTAKES = (
    PlantedMistake(GroupShards, "settle_shards", forgets_what_is_being_written, seeds=50),
    PlantedMistake(TransactionCoordinator, "settle_shards", gives_away_steps, seeds=100),
    PlantedMistake(GroupTable, "stop", lets_waiting_requests_wait, seeds=50),
    PlantedMistake(GroupOffsets, "_ensure_group", brings_groups_back, seeds=50),
    PlantedMistake(OffsetStore, "read", moves_without_pending_offsets, seeds=50),
    PlantedMistake(GroupOffsets, "end", forgets_groups_elsewhere, seeds=50),
    PlantedMistake(GroupOffsets, "end", ends_offsets_of_detached_shards, seeds=50),
    PlantedMistake(
        TransactionCoordinator, "_complete_prepared", leaves_prepared_transactions, seeds=50
    ),
    PlantedMistake(ShardLoader, "detach", detaches_before_it_refuses, seeds=50),
)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=mistake_name)
def test_a_planted_mistake_about_shards_is_caught(
    mistake: PlantedMistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure, again = expect_caught(mistake, CoordinatorRun, "--coordinators", monkeypatch)
    # Pytest adds the addresses of objects to the message of an assertion, in lines of their own.
    assert failure.error.splitlines()[0] == again.error.splitlines()[0]
