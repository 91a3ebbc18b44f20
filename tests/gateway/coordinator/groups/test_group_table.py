"""The table of groups: loading, limits, deletions that fail."""

from collections.abc import AsyncIterator

import pytest

from kledger.gateway.coordinator.classic.classic_group_record import (
    ClassicGroupRecord,
    encode_classic_group,
    encode_group_key,
)
from kledger.gateway.coordinator.classic.classic_group_state import ClassicGroup
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.groups.group_table import GroupTable, HostedGroup
from kledger.gateway.coordinator.runtime import CoordinatorRuntime
from kledger.ledger import LedgerStore, StoreConfig
from kledger.ledger.testing import ManualClock
from kledger.offsets import OffsetStore, TopicPartition
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from tests.gateway.coordinator.group_words import GroupWorld
from tests.gateway.coordinator.shell_words import at, settle


def table(config: GroupConfig | None = None) -> GroupTable:
    return GroupTable(config or GroupConfig(), ManualClock(50_000))


def classic(hosted: HostedGroup | None) -> ClassicGroup:
    assert hosted is not None
    assert isinstance(hosted.group, ClassicGroup)
    return hosted.group


async def test_groups_are_loaded_from_rows_and_from_offsets() -> None:
    world = GroupWorld()
    world.stable("a")
    stable = world.durable
    assert stable is not None
    empty = ClassicGroupRecord(
        group_id="empty", generation=5, protocol_type="consumer", protocol_name=None, leader=None
    )
    clock, supervisor = ManualClock(50_000), Supervisor()
    async with LedgerStore.open(None, config=StoreConfig(durability="os"), clock=clock) as store:
        await store.put_rows(
            [
                (encode_group_key("g"), encode_classic_group(stable, 40_000)),
                (encode_group_key("empty"), encode_classic_group(empty, 30_000)),
            ]
        )
        offsets = OffsetStore.open(store)
        offsets.commit_nowait("tools", [(TopicPartition("t", 0), at(1))], lambda _: None)
        offsets.commit_nowait("empty", [(TopicPartition("t", 0), at(1))], lambda _: None)
        await settle()
        timers = Timers(clock, supervisor)
        loaded = GroupTable(GroupConfig(), clock)
        loaded.load(store, offsets, CoordinatorRuntime(store, clock, timers))
        hosts = {hosted.group.group_id: hosted for hosted in loaded}
        assert len(timers) == 1, "one session"
        await supervisor.close()

    assert {name: hosted.group.state.value for name, hosted in hosts.items()} == {
        "g": "Stable",
        "empty": "Empty",
        "tools": "Empty",
    }
    since = {name: hosted.group_machine.empty_since_ms for name, hosted in hosts.items()}
    assert since == {"g": None, "empty": 30_000, "tools": None}
    assert classic(hosts["empty"]).generation == 5


def test_ensure_makes_a_group_once() -> None:
    groups = table(GroupConfig(groups_max=1))
    assert not groups.is_full

    hosted = groups.ensure("g")

    assert groups.ensure("g") is hosted is groups.get("g")
    assert groups.is_full
    assert len(groups) == 1


@pytest.fixture
async def runtime() -> AsyncIterator[CoordinatorRuntime]:
    clock, supervisor = ManualClock(50_000), Supervisor()
    async with LedgerStore.open(None, clock=clock) as store:
        yield CoordinatorRuntime(store, clock, Timers(clock, supervisor))
        await supervisor.close()


async def test_failed_deletion_restores_the_group_with_its_generation(
    runtime: CoordinatorRuntime,
) -> None:
    groups = table()
    old = groups.ensure("g")
    classic(old).generation = 7
    classic(old).protocol_type = "consumer"
    old.group_machine.empty_since_ms = 3
    groups.remove("g")
    old.group.kill(0)

    groups.restore(old, runtime)

    back = groups.get("g")
    assert back is not None
    assert back is not old
    assert (back.group.state.value, classic(back).generation) == ("Empty", 7)
    assert (back.group.protocol_type, back.group_machine.empty_since_ms) == ("consumer", 3)


async def test_failed_deletion_does_not_replace_a_new_group(runtime: CoordinatorRuntime) -> None:
    groups = table()
    old = groups.ensure("g")
    groups.remove("g")
    new = groups.ensure("g")

    groups.restore(old, runtime)

    assert groups.get("g") is new


def test_row_of_an_empty_group_carries_the_time() -> None:
    machine = table().ensure("g").group_machine
    record = ClassicGroupRecord(
        group_id="g", generation=1, protocol_type=None, protocol_name=None, leader=None
    )

    rows = machine.rows(record)

    assert rows == [(encode_group_key("g"), encode_classic_group(record, 50_000))]
    assert machine.empty_since_ms == 50_000


def test_only_group_records_are_written() -> None:
    with pytest.raises(AssertionError):
        table().ensure("g").group_machine.rows("something else")
