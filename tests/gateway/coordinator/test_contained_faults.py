"""A fault in a request to a group: the client retries, the group is reloaded from its row."""

from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest

from kledger.gateway.coordinator.classic.classic_group_state import ClassicGroup
from kledger.gateway.coordinator.consumer import classic_in_consumer_state
from kledger.gateway.coordinator.consumer.consumer_group_state import ConsumerGroup
from kledger.gateway.coordinator.group_messages import JoinResult, LeavingMember, RequestingMember
from kledger.gateway.coordinator.groups import group_coordinator, group_table
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger.testing import FaultyEngine
from tests.contained import Contained
from tests.gateway.coordinator.consumer_words import CatalogOfTest, command, subscribed
from tests.gateway.coordinator.consumer_words import join_command as consumer_join
from tests.gateway.coordinator.group_words import join_command, sync_command
from tests.gateway.coordinator.shell_words import CoordinatorBench, coordinator

UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


def fail_half_way(patch: pytest.MonkeyPatch, owner: type | ModuleType, name: str) -> None:
    """Let the next call change the group and then raise."""
    original = getattr(owner, name)

    def fails(*arguments: Any) -> object:
        patch.setattr(owner, name, original)
        original(*arguments)
        raise RuntimeError("injected")

    patch.setattr(owner, name, fails)


def fail_each(patch: pytest.MonkeyPatch, owner: type | ModuleType, name: str) -> None:
    """Let every call raise until the patch is undone."""

    def fails(*arguments: Any) -> object:
        raise RuntimeError("injected")

    patch.setattr(owner, name, fails)


async def join(bench: CoordinatorBench, member: JoinResult) -> ErrorCode:
    return (await bench.groups.join(join_command(member.member_id))).error


async def sync(bench: CoordinatorBench, member: JoinResult) -> ErrorCode:
    return (await bench.groups.sync(sync_command(member.member_id, 1))).error


async def heartbeat(bench: CoordinatorBench, member: JoinResult) -> ErrorCode:
    return bench.groups.heartbeat("g", RequestingMember(member.member_id, 1))


async def leave(bench: CoordinatorBench, member: JoinResult) -> ErrorCode:
    return (await bench.groups.leave("g", (LeavingMember(member.member_id),)))[0]


Request = Callable[[CoordinatorBench, JoinResult], Awaitable[ErrorCode]]
CLASSIC: dict[str, Request] = {
    "join": join,
    "sync": sync,
    "heartbeat": heartbeat,
    "leave": leave,
}


@pytest.mark.parametrize("kind", CLASSIC)
async def test_classic_group_that_fails_in_a_request_is_as_it_was_stored(
    kind: str, monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """It stayed half changed: a member that got an error had left, or joined, in memory."""
    async with coordinator() as bench:
        member, other = await bench.stable(), await bench.stable("other")
        before = bench.groups.describe("g")
        fail_half_way(monkeypatch, ClassicGroup, kind)
        assert UNAVAILABLE == await CLASSIC[kind](bench, member)
        assert ["a fault here closes group g"] == contained.messages
        assert before == bench.groups.describe("g")
        assert ErrorCode.NONE == await heartbeat(bench, member)
        assert ErrorCode.NONE == bench.groups.heartbeat(
            "other", RequestingMember(other.member_id, 1)
        )
        again = await bench.join(member.member_id)
        assert (ErrorCode.NONE, 2, 0) == (
            again.error,
            again.generation,
            bench.groups.waiting_count,
        )


async def test_waiting_members_of_a_group_that_fails_retry(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    async with coordinator() as bench:
        waiting = await bench.start(bench.groups.join(join_command()))
        fail_half_way(monkeypatch, ClassicGroup, "join")
        assert UNAVAILABLE == (await bench.groups.join(join_command())).error
        assert UNAVAILABLE == (await waiting).error
        assert (ErrorCode.NONE, 1) == ((await bench.join()).error, len(contained.messages))


async def test_failed_group_stays_until_it_can_be_made_again(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """A new group without members would replace its row."""
    async with coordinator() as bench:
        member = await bench.stable()
        with monkeypatch.context() as patch:
            fail_each(patch, ClassicGroup, "replay")
            fail_half_way(patch, ClassicGroup, "heartbeat")
            assert UNAVAILABLE == await heartbeat(bench, member)
            assert UNAVAILABLE == await join(bench, member)
        assert UNAVAILABLE == await heartbeat(bench, member)
        assert ErrorCode.NONE == await heartbeat(bench, member)
    assert "group g could not be closed after it" in contained.messages


async def test_group_that_fails_when_its_record_is_durable_is_made_again_of_it(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    async with coordinator() as bench:
        member = await bench.join()
        asked = sync_command(member.member_id, 1, assignments={member.member_id: b"all"})
        fail_half_way(monkeypatch, ClassicGroup, "replay")
        assert UNAVAILABLE == (await bench.groups.sync(asked)).error
        assert ["a fault here closes group g"] == contained.messages
        again = await bench.groups.sync(sync_command(member.member_id, 1))
        assert (ErrorCode.NONE, b"all", 0) == (
            again.error,
            again.assignment,
            bench.groups.waiting_count,
        )


async def test_group_that_fails_when_its_record_could_not_be_stored_is_as_it_was_stored(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        member = await bench.stable(instance_id="i")
        engine.fail_next("commit")
        fail_half_way(monkeypatch, ClassicGroup, "write_failed")
        assert UNAVAILABLE == (await bench.groups.join(join_command(instance_id="i"))).error
        assert ["a fault here closes group g"] == contained.messages
        sender = RequestingMember(member.member_id, 1, "i")
        assert ErrorCode.NONE == bench.groups.heartbeat("g", sender)


async def test_group_that_fails_while_a_record_is_written_gets_it_when_it_is_durable(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        member = await bench.join()
        hold = engine.hold_next("commit")
        asked = sync_command(member.member_id, 1, assignments={member.member_id: b"all"})
        waiting = await bench.start(bench.groups.sync(asked))
        await hold.reached()
        fail_half_way(monkeypatch, ClassicGroup, "heartbeat")
        assert UNAVAILABLE == await heartbeat(bench, member)
        assert UNAVAILABLE == (await waiting).error
        hold.release()
        await bench.written()
        again = await bench.groups.sync(sync_command(member.member_id, 1))
        assert (ErrorCode.NONE, b"all") == (again.error, again.assignment)
    assert ["a fault here closes group g"] == contained.messages


@pytest.mark.parametrize("epoch", [0, 1, -1])
async def test_consumer_group_that_fails_in_a_heartbeat_is_as_it_was_stored(
    epoch: int, monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    async with coordinator(catalog=CatalogOfTest(t=2)) as bench:
        groups = bench.groups
        joined = await groups.consumer_heartbeat(consumer_join("a", "t"))
        before = groups.describe_consumer_group("g")
        fail_half_way(monkeypatch, ConsumerGroup, "heartbeat")
        name = "a" if epoch else "b"
        asked = command(name, epoch) if epoch else consumer_join(name, "t")
        assert UNAVAILABLE == (await groups.consumer_heartbeat(asked)).error
        assert ["a fault here closes group g"] == contained.messages
        assert before == groups.describe_consumer_group("g")
        again = await groups.consumer_heartbeat(command("a", joined.epoch))
        assert (ErrorCode.NONE, 0) == (again.error, bench.groups.waiting_count)


@pytest.mark.parametrize("kind", ["join", "sync", "heartbeat", "leave"])
async def test_consumer_group_that_fails_for_a_classic_member_is_as_it_was_stored(
    kind: str, monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    async with coordinator(catalog=CatalogOfTest(t=2)) as bench:
        groups = bench.groups
        await groups.consumer_heartbeat(consumer_join("a", "t"))
        before = groups.describe_consumer_group("g")
        fail_half_way(monkeypatch, classic_in_consumer_state, kind)
        member = JoinResult(error=ErrorCode.NONE, member_id="" if kind == "join" else "a")
        assert UNAVAILABLE == await CLASSIC[kind](bench, member)
        assert ["a fault here closes group g"] == contained.messages
        assert before == groups.describe_consumer_group("g")


READS_T = (("range", subscribed("t")),)


GOING_BACK: dict[str, tuple[type | ModuleType, str]] = {
    "making the classic form": (group_coordinator, "downgraded"),
    "taking it in": (ClassicGroup, "replay"),
}


@pytest.mark.parametrize("topic_partition", GOING_BACK)
async def test_group_that_fails_in_its_downgrade_is_as_it_was_stored(
    topic_partition: str, monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """The fault reached the connection of the client that looked the group up."""
    async with coordinator(catalog=CatalogOfTest(t=2)) as bench:
        member = await bench.stable(protocols=READS_T, assignments="01")
        groups = bench.groups
        await groups.consumer_heartbeat(consumer_join("a", "t"))
        await groups.consumer_heartbeat(command("a", -1))
        with monkeypatch.context() as patch:
            fail_each(patch, *GOING_BACK[topic_partition])
            assert UNAVAILABLE == await heartbeat(bench, member)
            assert UNAVAILABLE == await join(bench, member)
            assert UNAVAILABLE == await sync(bench, member)
            assert UNAVAILABLE == await leave(bench, member)
            assert UNAVAILABLE == (await groups.consumer_heartbeat(consumer_join("b", "t"))).error
            assert ["g"] == [one.group_id for one in bench.groups.list_groups()]
        assert {"a fault here closes group g"} == set(contained.messages)
        assert ["PreparingRebalance"] == [one.state for one in bench.groups.list_groups()]
        again = await bench.join(member.member_id, protocols=READS_T)
        assert (ErrorCode.NONE, member.member_id) == (again.error, again.leader)
        assert 0 == bench.groups.waiting_count


async def test_classic_form_that_fails_as_it_begins_is_reloaded(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    async with coordinator(catalog=CatalogOfTest(t=2)) as bench:
        member = await bench.stable(protocols=READS_T, assignments="01")
        groups = bench.groups
        await groups.consumer_heartbeat(consumer_join("a", "t"))
        await groups.consumer_heartbeat(command("a", -1))
        fail_half_way(monkeypatch, group_table, "_cancel")
        assert UNAVAILABLE == await heartbeat(bench, member)
        assert ["a fault here closes group g"] == contained.messages
        assert ["PreparingRebalance"] == [one.state for one in bench.groups.list_groups()]


async def test_classic_group_that_fails_in_its_upgrade_is_as_it_was_stored(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    async with coordinator(catalog=CatalogOfTest(t=2)) as bench:
        member = await bench.stable(protocols=READS_T, assignments="01")
        groups = bench.groups
        before = bench.groups.describe("g")
        fail_half_way(monkeypatch, group_coordinator, "upgraded")
        assert UNAVAILABLE == (await groups.consumer_heartbeat(consumer_join("a", "t"))).error
        assert ["a fault here closes group g"] == contained.messages
        assert before == bench.groups.describe("g")
        assert ErrorCode.NONE == await heartbeat(bench, member)
        assert ErrorCode.NONE == (await groups.consumer_heartbeat(consumer_join("a", "t"))).error
        assert 0 == bench.groups.waiting_count
