"""The coordinator over a real store: waiting, restarts, limits, closing."""

import asyncio
from typing import Any

import pytest

from kledger.gateway.coordinator.classic.classic_group_state import ClassicGroup
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import GroupListing, LeavingMember, RequestingMember
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger.testing import FaultyEngine
from kledger.offsets import TopicPartition
from tests.contained import Contained
from tests.gateway.coordinator.group_words import SESSION_MS, join_command, sync_command
from tests.gateway.coordinator.shell_words import at, coordinator, settle


async def test_members_get_one_generation_and_their_assignments() -> None:
    async with coordinator() as bench:
        first = await bench.start(bench.groups.join(join_command()))
        second = await bench.start(bench.groups.join(join_command()))
        assert bench.groups.waiting_count == 2
        await bench.advance(6_000)
        a, b = await first, await second
        assert a.generation == b.generation == 1
        assert a.member_id == a.leader == b.leader != b.member_id
        assert a.member_id.startswith("client-")

        waiting = await bench.start(bench.groups.sync(sync_command(b.member_id, 1)))
        assert not waiting.done()
        assigned = {a.member_id: b"A", b.member_id: b"B"}
        mine = await bench.groups.sync(sync_command(a.member_id, 1, assignments=assigned))

        assert (mine.assignment, (await waiting).assignment) == (b"A", b"B")
        assert bench.groups.heartbeat("g", RequestingMember(b.member_id, 1)) == ErrorCode.NONE
        assert bench.groups.waiting_count == 0


async def test_join_counts_from_the_moment_in_which_its_request_is_read() -> None:
    """A heartbeat in the same tick sees the rebalance: no member needs an extra heartbeat."""
    async with coordinator() as bench:
        a = await bench.stable()

        bench.groups.join(join_command())

        error = bench.groups.heartbeat("g", RequestingMember(a.member_id, a.generation))
        assert error == ErrorCode.REBALANCE_IN_PROGRESS


async def test_assignment_is_answered_only_when_it_is_durable() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        a = await bench.join()
        hold = engine.hold_next("commit")

        sync = await bench.start(bench.groups.sync(sync_command(a.member_id, 1)))
        await hold.reached()
        await settle()
        assert not sync.done()
        hold.release()

        assert (await sync).error == ErrorCode.NONE


async def test_failed_write_of_an_assignment_makes_the_member_rejoin() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        a = await bench.join()
        engine.fail_next("commit")

        synced = await bench.groups.sync(sync_command(a.member_id, 1))

        assert synced.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        again = await bench.join(a.member_id)
        assert (again.error, again.generation) == (ErrorCode.NONE, 2)


async def test_row_105_restart_keeps_members_generation_and_offsets() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        a = await bench.stable()
        sender = RequestingMember(a.member_id, 1)
        assert await bench.commit(TopicPartition("t", 0), at(7), sender) == ErrorCode.NONE
        clock = bench.clock

    async with coordinator(engine=engine, clock=clock) as bench:
        assert bench.groups.heartbeat("g", sender) == ErrorCode.NONE
        assert bench.groups.offsets.committed("g", TopicPartition("t", 0)) == at(7)
        assert await bench.commit(TopicPartition("t", 0), at(8), sender) == ErrorCode.NONE
        synced = await bench.groups.sync(sync_command(a.member_id, 1))
        assert synced.assignment == b"all"
        await bench.advance(SESSION_MS + 500)
        assert bench.groups.heartbeat("g", sender) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_group_with_only_offsets_exists_after_a_restart() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        await bench.commit(TopicPartition("t", 0), at(7))

    async with coordinator(engine=engine) as bench:
        assert bench.groups.list_groups() == [GroupListing("g", "", "Empty")]


async def test_heartbeats_write_nothing() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        a = await bench.stable()
        await bench.written()
        writes = engine.calls["commit"]

        for _ in range(100):
            bench.groups.heartbeat("g", RequestingMember(a.member_id, 1))
            bench.clock.advance(100)
            await settle()

        await bench.written()
        assert engine.calls["commit"] == writes + 1, "what waits for all writes is one"


async def test_cancelled_join_of_a_member_without_an_id_is_forgotten() -> None:
    """Its connection dropped: the rebalance must not wait for a member without a client."""
    async with coordinator() as bench:
        a = await bench.stable()
        lost = await bench.start(bench.groups.join(join_command()))
        lost.cancel()
        await settle()

        again = await bench.join(a.member_id)

        assert len(again.members) == 1
        assert bench.groups.waiting_count == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "x" * 4_097}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 1_000}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 31 * 60_000}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "ghost"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": (("range", bytes((1 << 20) + 1)),)}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_row_93_join_that_is_invalid_in_any_group(
    changes: dict[str, Any], expected: ErrorCode
) -> None:
    async with coordinator() as bench:
        result = await bench.groups.join(join_command(**{"member_id": "", **changes}))

        assert result.error == expected
        assert result.member_id == changes.get("member_id", "")
        assert bench.groups.group_count == 0


@pytest.mark.parametrize("timeout_ms", [6_000, 1_800_000])
async def test_row_93_bounds_of_the_session_timeout_are_included(timeout_ms: int) -> None:
    async with coordinator() as bench:
        assert (await bench.join(session_timeout_ms=timeout_ms)).error == ErrorCode.NONE


async def test_groups_are_limited() -> None:
    async with coordinator(GroupConfig(groups_max=1)) as bench:
        await bench.stable("one")

        assert (await bench.join(group_id="two")).error == ErrorCode.POLICY_VIOLATION
        refused = await bench.commit(TopicPartition("t", 0), at(1), group="two")
        assert refused == ErrorCode.POLICY_VIOLATION


async def test_requests_for_a_group_that_does_not_exist() -> None:
    async with coordinator() as bench:
        groups = bench.groups
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert groups.heartbeat("g", RequestingMember("a", 1)) == unknown
        assert (await groups.sync(sync_command("a", 1))).error == unknown
        assert await groups.leave("g", (LeavingMember("a"), LeavingMember("b"))) == (
            ErrorCode.NONE,
            [unknown] * 2,
        )
        assert groups.describe("g") is None
        assert groups.group_count == 0


async def test_empty_group_id_is_invalid() -> None:
    async with coordinator() as bench:
        groups = bench.groups
        invalid = ErrorCode.INVALID_GROUP_ID
        assert groups.heartbeat("", RequestingMember("a", 1)) == invalid
        assert (await groups.sync(sync_command("a", 1, group_id=""))).error == invalid
        assert await groups.leave("", (LeavingMember("a"),)) == (invalid, [])


async def test_list_filters_by_state_and_type() -> None:
    async with coordinator() as bench:
        await bench.stable("busy", session_timeout_ms=60_000)
        await bench.commit(TopicPartition("t", 0), at(1), group="quiet")

        def listed(states: list[str], types: list[str]) -> set[str]:
            return {each.group_id for each in bench.groups.list_groups(states, types)}

        assert listed([], []) == {"busy", "quiet"}
        assert listed(["stable"], []) == {"busy"}
        assert listed(["Empty", "Dead"], ["CLASSIC"]) == {"quiet"}
        assert listed([], ["consumer"]) == set()
        assert bench.groups.list_groups(["Stable"]) == [
            GroupListing("busy", "consumer", "Stable", "classic")
        ]


async def test_close_answers_waiting_requests_and_rejects_new_ones() -> None:
    async with coordinator() as bench:
        a = await bench.join()
        await bench.start(bench.groups.join(join_command()))
        sync = bench.tasks[-1]
        other = await bench.start(bench.groups.join(join_command(group_id="h")))

        bench.groups.close()
        bench.groups.close()
        await settle()

        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await sync).error == (await other).error == unavailable
        assert bench.groups.heartbeat("g", RequestingMember(a.member_id, 1)) == unavailable
        assert (await bench.groups.join(join_command())).error == unavailable
        assert (await bench.groups.sync(sync_command("a", 1))).error == unavailable
        assert await bench.groups.leave("g", (LeavingMember("a"),)) == (unavailable, [])


async def test_session_ends_without_any_request() -> None:
    async with coordinator() as bench:
        a = await bench.stable()
        await bench.advance(SESSION_MS - 500)
        assert bench.groups.heartbeat("g", RequestingMember(a.member_id, 1)) == ErrorCode.NONE

        await bench.advance(SESSION_MS)

        description = bench.groups.describe("g")
        assert description is not None
        assert (description.state, description.members) == ("Empty", ())


async def test_static_member_gets_an_id_that_begins_with_its_instance() -> None:
    async with coordinator() as bench:
        a = await bench.join(instance_id="instance-1")

        assert a.member_id.startswith("instance-1-")


async def test_two_joins_at_the_same_time_make_one_group() -> None:
    async with coordinator() as bench:
        both = asyncio.gather(bench.join(), bench.join())
        a, b = await both

        assert {a.generation, b.generation} == {1}


async def test_group_that_fails_on_a_timer_is_reloaded_from_its_row(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    async with coordinator() as bench:
        a = await bench.stable()
        other = await bench.stable("other")
        fired = ClassicGroup.timer_fired

        def fails(self: ClassicGroup, key: object, now_ms: int) -> object:
            monkeypatch.setattr(ClassicGroup, "timer_fired", fired)
            raise RuntimeError("injected")

        monkeypatch.setattr(ClassicGroup, "timer_fired", fails)
        assert (
            bench.groups.heartbeat("other", RequestingMember(other.member_id, 1)) == ErrorCode.NONE
        )
        await bench.advance(SESSION_MS)
        assert ["a fault here closes group g"] == contained.messages
        assert bench.groups.heartbeat("g", RequestingMember(a.member_id, 1)) == ErrorCode.NONE
        again = await bench.join(a.member_id)
        assert (again.error, again.member_id) == (ErrorCode.NONE, a.member_id)
