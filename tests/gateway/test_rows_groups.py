"""Rows of docs/SCENARIOS.md over sockets, from the first byte to the last.

What a group decides is shown in all its cases by `coordinator/test_group_rows.py`; here it is shown
that a client sees it, and that time and lost connections reach the group.
"""

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from kledger.gateway.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kledger.gateway.wire.messages.k15_describe_groups import DescribedGroup, DescribeGroupsRequest
from kledger.ledger.testing import FaultyEngine
from tests.gateway.group_client import (
    REBALANCE_MS,
    SESSION_MS,
    GroupClient,
    clients,
    make_stable,
    waiting,
)
from tests.gateway.running import running_gateway, until

NEW_MEMBER_MS = 300_000


async def described(client: GroupClient) -> DescribedGroup:
    response = await client.wire.ask(DescribeGroupsRequest(groups=["g"]), 5)
    group: DescribedGroup = response.groups[0]
    return group


@pytest.mark.parametrize("version", range(7))
async def test_row_36_coordinator_is_this_node_for_each_key(version: int) -> None:
    async with running_gateway() as gateway, clients(gateway, 1) as (one,):
        address = (0, 1, "127.0.0.1", gateway.port)
        for key_type in (0, 1) if version else (0,):
            request = FindCoordinatorRequest(
                key="g", key_type=key_type, coordinator_keys=["g", "h", "g"]
            )
            response = await one.wire.ask(request, version)
            found = response.coordinators if version >= 4 else [response]
            assert [address] * (3 if version >= 4 else 1) == [
                (each.error_code, each.node_id, each.host, each.port) for each in found
            ]
            if version >= 4:
                assert ["g", "h", "g"] == [each.key for each in found]


async def test_row_82_id_first_and_an_unused_one_vanishes() -> None:
    async with running_gateway() as gateway, clients(gateway, 2) as (one, other):
        await one.ask_id()
        await other.ask_id()
        assert (0, 1) == ((await one.join()).error_code, one.generation)
        assert 1 == len((await described(one)).members)
        await one.sync(one)
        gateway.clock.advance(SESSION_MS - 1)
        assert 0 == await one.heartbeat()
        gateway.clock.advance(1)
        assert 25 == (await other.join()).error_code


@pytest.mark.parametrize(("version", "instance_id"), [(0, None), (3, None), (5, "i"), (9, "i")])
async def test_row_83_old_and_static_members_join_directly(
    version: int, instance_id: str | None
) -> None:
    async with running_gateway() as gateway, clients(gateway, 1) as (one,):
        one.instance_id = instance_id
        one.send_join(version)
        assert (0, 1) == ((await one.joined()).error_code, one.generation)


async def test_row_84_third_member_brings_all_into_the_next_generation() -> None:
    async with running_gateway() as gateway, clients(gateway, 3) as (a, b, c):
        await make_stable(gateway, a, b)
        await c.ask_id()
        c.send_join()
        await waiting(gateway, 1)
        assert [27, 27] == [await a.heartbeat(), await b.heartbeat()]
        a.send_join()
        await waiting(gateway, 2)
        b.send_join()
        responses = [await one.joined() for one in (a, b, c)]
        assert [0, 0, 0] == [one.error_code for one in responses]
        assert [3, 3, 3] == [one.generation_id for one in responses]
        assert [3, 0, 0] == [len(one.members) for one in responses]
        assert {a.member_id} == {one.leader for one in responses}


async def test_row_84_member_that_does_not_rejoin_in_time_is_dropped() -> None:
    async with running_gateway() as gateway, clients(gateway, 3) as (a, b, c):
        await make_stable(gateway, a, b)
        await c.ask_id()
        c.send_join()
        a.send_join()
        await waiting(gateway, 2)
        for _ in range(REBALANCE_MS // 5_000):
            # It says hello and does not come back: its session does not end, its time does.
            assert 27 == await b.heartbeat()
            gateway.clock.advance(5_000)
        assert 2 == len((await a.joined()).members)
        assert 0 == (await c.joined()).error_code
        assert 25 == await b.heartbeat()


async def test_row_85_heartbeat_in_each_state() -> None:
    async with running_gateway() as gateway, clients(gateway, 2) as (one, other):
        assert 25 == await one.heartbeat(), "no group"
        await one.join()
        assert 0 == await one.heartbeat(), "completing"
        await one.sync(one)
        assert [0, 22, 22] == [await one.heartbeat(number) for number in (1, 2, 0)]
        other.member_id = "nobody"
        assert 25 == await other.heartbeat(1)
        other.member_id = ""
        await other.ask_id()
        other.send_join()
        await waiting(gateway, 1)
        for _ in range(3):
            gateway.clock.advance(SESSION_MS - 1)
            assert 27 == await one.heartbeat(), "preparing, and its session is renewed"
        assert [0] == await one.leave()
        await other.joined()
        await other.leave()
        assert 25 == await other.heartbeat(), "empty"


@pytest.mark.parametrize("way", ["leaves", "falls silent"])
async def test_row_86_join_is_complete_when_the_missing_member_is_gone(way: str) -> None:
    async with running_gateway() as gateway, clients(gateway, 2) as (one, other):
        await make_stable(gateway, one)
        await other.ask_id()
        other.send_join()
        await waiting(gateway, 1)
        if way == "leaves":
            assert [0] == await one.leave()
        else:
            gateway.clock.advance(SESSION_MS)
        assert (0, other.member_id) == ((await other.joined()).error_code, other.member_id)


@pytest.mark.parametrize("step", ["join", "sync"])
async def test_row_87_connection_lost_while_waiting_does_not_hold_the_group(step: str) -> None:
    async with running_gateway() as gateway, clients(gateway, 2) as (one, other):
        await make_stable(gateway, one)
        await other.ask_id()
        other.send_join()
        await waiting(gateway, 1)
        if step == "sync":
            await one.join()
            await other.joined()
            other.send_sync()
            await waiting(gateway, 1)
        other.wire.reset()
        await until(lambda: gateway.server.connection_count == 1)
        for _ in range(REBALANCE_MS // 5_000):
            if await one.heartbeat() == 27:
                await one.join()
            await one.sync(one)
            gateway.clock.advance(5_000)
        assert 0 == await one.heartbeat()
        assert [one.member_id] == [each.member_id for each in (await described(one)).members]


async def test_row_88_leader_that_never_syncs_is_ejected() -> None:
    async with running_gateway() as gateway, clients(gateway, 2) as (leader, other):
        await leader.join()
        await other.ask_id()
        other.send_join()
        await waiting(gateway, 1)
        await leader.join()
        await other.joined()
        other.send_sync()
        await waiting(gateway, 1)
        for _ in range(REBALANCE_MS // 5_000):
            assert 0 == await leader.heartbeat()
            gateway.clock.advance(5_000)
        assert 27 == (await other.wire.receive()).error_code
        assert 25 == await leader.heartbeat()
        assert [other.member_id] == [each.member_id for each in (await other.join()).members]


async def test_row_89_waiting_members_outlive_their_session() -> None:
    async with running_gateway() as gateway, clients(gateway, 2) as (one, other):
        await make_stable(gateway, one)
        await other.ask_id()
        other.send_join()
        await waiting(gateway, 1)
        for _ in range(5):
            gateway.clock.advance(SESSION_MS - 1)
            assert 27 == await one.heartbeat()
        assert 0 == (await one.join()).error_code
        assert 0 == (await other.joined()).error_code
        other.send_sync()
        await waiting(gateway, 1)
        for _ in range(5):
            gateway.clock.advance(SESSION_MS - 1)
            assert 0 == await one.heartbeat()
        await one.sync(one, other)
        assert 0 == (await other.wire.receive()).error_code


async def test_row_89_new_member_waits_five_minutes_at_most() -> None:
    async with running_gateway() as gateway, clients(gateway, 2) as (one, other):
        await make_stable(gateway, one)
        await one.join(rebalance_timeout_ms=2 * NEW_MEMBER_MS)
        await one.sync(one)
        other.send_join(3, rebalance_timeout_ms=2 * NEW_MEMBER_MS)
        await waiting(gateway, 1)
        for _ in range(NEW_MEMBER_MS // 5_000):
            assert 27 == await one.heartbeat()
            gateway.clock.advance(5_000)
        assert 25 == (await other.joined()).error_code


async def test_row_90_follower_waits_for_the_leader() -> None:
    async with running_gateway() as gateway, clients(gateway, 2) as (one, other):
        await make_stable(gateway, one, other)
        assert other.member_id.encode() == (await other.sync()).assignment
        for kind, name in (("consumer", "coop"), ("connect", "range"), (None, None)):
            response = await other.sync(version=5, protocol_type=kind, protocol_name=name)
            assert 23 == response.error_code


async def test_row_91_members_that_rejoin_a_stable_group() -> None:
    async with running_gateway() as gateway, clients(gateway, 2) as (leader, other):
        await make_stable(gateway, leader, other)
        assert (0, 2) == ((await other.join()).error_code, other.generation)
        assert 0 == await leader.heartbeat()
        other.protocols = (("range", b"changed"),)
        other.send_join()
        await waiting(gateway, 1)
        assert 27 == await leader.heartbeat()
        joined = await leader.join()
        assert (3, {b"r", b"changed"}) == (
            joined.generation_id, {one.metadata for one in joined.members}
        )  # fmt: skip
        await other.joined()
        await leader.sync(leader, other)
        leader.send_join()
        await waiting(gateway, 1)
        assert 27 == await other.heartbeat()


async def test_row_92_protocol_is_the_common_one_and_a_stranger_is_refused() -> None:
    async with running_gateway() as gateway, clients(gateway, 3) as (one, other, stranger):
        one.protocols = (("range", b""), ("coop", b""))
        other.protocols = (("coop", b""), ("sticky", b""))
        stranger.protocols = (("x", b""),)
        await one.join()
        await other.ask_id()
        other.send_join()
        await waiting(gateway, 1)
        assert "coop" == (await one.join()).protocol_name
        assert "coop" == (await other.joined()).protocol_name
        for version in (3, 5, 9):
            assert 23 == (await stranger.join(version)).error_code
        stranger.protocols = one.protocols
        assert 23 == (await stranger.join(protocol_type="connect")).error_code


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001, 31 * 60_000, 0, -1])
async def test_row_93_session_timeout_out_of_bounds(timeout_ms: int) -> None:
    async with running_gateway() as gateway, clients(gateway, 1) as (one,):
        assert 26 == (await one.join(session_timeout_ms=timeout_ms)).error_code
        assert 24 == (await one.join(group_id="")).error_code
        for edge in (6_000, 1_800_000):
            assert 0 == (await one.join(session_timeout_ms=edge, group_id=str(edge))).error_code
            one.member_id = ""


async def test_row_94_initial_delay_gathers_members_in_one_rebalance() -> None:
    config = GatewayConfig(group_initial_rebalance_delay_ms=3_000)
    async with running_gateway(config) as gateway, clients(gateway, 3) as (one, other, passer_by):
        one.send_join(3)
        await waiting(gateway, 1)
        gateway.clock.advance(1_000)
        other.send_join(3)
        await waiting(gateway, 2)
        gateway.clock.advance(2_000)
        assert 25 == await passer_by.heartbeat()
        assert 2 == gateway.services.groups.waiting_count, "the newcomer prolongs the delay"
        gateway.clock.advance(3_000)
        joined = await one.joined()
        assert (1, 2) == (joined.generation_id, len(joined.members))
        assert 1 == (await other.joined()).generation_id


@pytest.mark.parametrize("version", [5, 9])
async def test_row_95_static_member_restarts_without_a_rebalance(version: int) -> None:
    ids = ("i", "", "i")
    async with (
        running_gateway() as gateway,
        clients(gateway, 3, instance_ids=ids) as (old, other, new),
    ):
        other.instance_id = None
        await gateway.create_topic()
        await make_stable(gateway, old, other)
        assignment = (await old.sync()).assignment
        joined = await new.join(version)
        assert (0, 2) == (joined.error_code, joined.generation_id)
        assert new.member_id != old.member_id
        assert (version == 9) == joined.skip_assignment
        assert assignment == (await new.sync()).assignment
        assert [0, 0] == [await other.heartbeat(), await new.heartbeat()]
        assert 82 == await old.heartbeat()
        assert 82 == await old.commit()
        assert 82 == (await old.sync()).error_code
        assert 82 == (await old.join()).error_code
        assert [82] == await old.leave()


async def test_row_96_static_member_stays_until_its_timeout_or_its_removal() -> None:
    ids = ("i", "j")
    async with (
        running_gateway() as gateway,
        clients(gateway, 3, instance_ids=ids) as (one, gone, admin),
    ):
        await make_stable(gateway, one, gone)
        gone.wire.writer.close()
        await until(lambda: gateway.server.connection_count == 2)
        gateway.clock.advance(SESSION_MS - 1)
        assert 0 == await one.heartbeat()
        names = [MemberIdentity(member_id="", group_instance_id=one) for one in ("j", "nobody")]
        request = LeaveGroupRequest(group_id="g", members=names)
        response = await admin.wire.ask(request, 3)
        assert [("j", 0), ("nobody", 25)] == [
            (each.group_instance_id, each.error_code) for each in response.members
        ]
        assert 27 == await one.heartbeat()


async def test_row_104_metadata_that_is_no_subscription_passes_untouched() -> None:
    async with running_gateway() as gateway, clients(gateway, 1) as (one,):
        one.protocols = (("range", b"\0\1"),)
        assert [b"\0\1"] == [each.metadata for each in (await one.join()).members]
        await one.sync(one)
        (member,) = (await described(one)).members
        assert (b"\0\1", one.member_id.encode()) == (
            member.member_metadata, member.member_assignment
        )  # fmt: skip


async def test_row_105_members_go_on_after_a_restart() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway, clients(gateway, 2) as (one, other):
        await gateway.create_topic()
        await make_stable(gateway, one, other)
        await one.commit(6)
    async with running_gateway(engine=engine) as gateway, clients(gateway, 2) as again:
        for before, after in zip((one, other), again, strict=True):
            after.member_id, after.generation = before.member_id, before.generation
            assert 0 == await after.heartbeat()
            assert after.member_id.encode() == (await after.sync()).assignment
        assert 6 == await again[0].committed()
        assert 0 == await again[1].commit(8)
        assert 8 == await again[0].committed()
