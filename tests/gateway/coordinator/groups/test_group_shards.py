"""Shards of groups are detached and attached again while the others are in use."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from kledger.gateway.coordinator.classic.classic_group_record import encode_group_key
from kledger.gateway.coordinator.coordinator_shards_state import shard_of
from kledger.gateway.coordinator.group_messages import RequestingMember
from kledger.gateway.coordinator.shard_counts import COORDINATOR_SHARD_COUNT
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerStore, UnreadableRow
from kledger.ledger.testing import FaultyEngine
from kledger.offsets import TopicPartition
from tests.gateway.coordinator.consumer_words import CatalogOfTest, command
from tests.gateway.coordinator.consumer_words import join_command as consumer_join
from tests.gateway.coordinator.group_words import SESSION_MS, join_command, sync_command
from tests.gateway.coordinator.shell_words import TOPIC_ID, CoordinatorBench, at, coordinator

G, H = ([shard_of(group_id, COORDINATOR_SHARD_COUNT)] for group_id in "gh")
T0 = TopicPartition("t", 0)
TOOL = RequestingMember("", -1)


async def moved(bench: CoordinatorBench) -> None:
    """Detach the shard of `g`, and attach it again."""
    await bench.groups.detach(G)
    await bench.groups.attach(G)


async def listed(bench: CoordinatorBench) -> list[tuple[str, str]]:
    return sorted((one.group_id, one.state) for one in bench.groups.list_groups())


async def test_requests_that_wait_are_sent_elsewhere_and_those_of_other_shards_go_on() -> None:
    async with coordinator() as bench:
        waiting = [
            await bench.start(bench.groups.join(join_command(group_id=group_id)))
            for group_id in "gh"
        ]
        await bench.groups.detach(G)
        assert ErrorCode.NOT_COORDINATOR == (await waiting[0]).error
        assert [("h", "PreparingRebalance")] == await listed(bench)
        await bench.advance(6_000)
        joined = await waiting[1]
        assert ErrorCode.NONE == joined.error

        follower = await bench.start(bench.groups.join(join_command(group_id="h")))
        again = join_command(joined.member_id, group_id="h")
        leader = await (await bench.start(bench.groups.join(again)))
        generation = (await follower).generation
        asked = sync_command((await follower).member_id, generation, group_id="h")
        syncing = await bench.start(bench.groups.sync(asked))
        assert not syncing.done(), f"{leader.leader} has not assigned"
        await bench.groups.detach(H)
        assert ErrorCode.NOT_COORDINATOR == (await syncing).error
        assert (0, []) == (bench.groups.waiting_count, await listed(bench))


async def test_a_heartbeat_that_waits_for_its_write_is_sent_elsewhere() -> None:
    """The write ends nevertheless, and the next owner sees it."""
    engine = FaultyEngine(None)
    async with coordinator(engine=engine, catalog=CatalogOfTest(t=2)) as bench:
        hold = engine.hold_next("commit")
        joining = await bench.start(bench.groups.consumer_heartbeat(consumer_join("a", "t")))
        await hold.reached()
        detaching = await bench.start(bench.groups.detach(G))
        assert ErrorCode.NOT_COORDINATOR == (await joining).error
        assert not detaching.done(), "a write is under way"
        hold.release()
        await detaching
        assert [] == await listed(bench)
        await bench.groups.attach(G)
        assert [("g", "Stable")] == await listed(bench)
        group = bench.groups.describe_consumer_group("g")
        assert group is not None
        assert ["a"] == [member.member_id for member in group.members]


async def test_a_commit_under_way_is_answered_by_its_outcome() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        hold = engine.hold_next("commit")
        committing = await bench.start(bench.commit(T0, at(5)))
        await hold.reached()
        detaching = await bench.start(bench.groups.detach(G))
        refused = await bench.commit(T0, at(6))
        assert ErrorCode.NOT_COORDINATOR == refused
        hold.release()
        assert ErrorCode.NONE == await committing
        await detaching
        assert (None, []) == (bench.groups.offsets.committed("g", T0), await listed(bench))
        await bench.groups.attach(G)
        assert at(5) == bench.groups.offsets.committed("g", T0)
        assert [("g", "Empty")] == await listed(bench)


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_write_that_fails_leaves_no_group_in_a_detached_shard(is_commit: bool) -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        assert ErrorCode.NONE == await bench.commit(T0, at(5))
        hold = engine.hold_next("commit")
        work: Awaitable[Any] = (
            bench.commit(T0, at(6)) if is_commit else bench.groups.offsets.delete_groups(["g"])
        )
        writing = await bench.start(work)
        await hold.reached()
        detaching = await bench.start(bench.groups.detach(G))
        engine.fail_next("commit")
        hold.fail()
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (unavailable if is_commit else [unavailable]) == await writing
        await detaching
        assert [] == await listed(bench)
        await bench.groups.attach(G)
        assert at(5) == bench.groups.offsets.committed("g", T0)


async def test_members_continue_in_their_generation_with_new_sessions() -> None:
    async with coordinator() as bench:
        joined = await bench.stable(assignments="0")
        sender = RequestingMember(joined.member_id, joined.generation)
        timers = len(bench.timers)
        await bench.groups.detach(G)
        assert timers - 1 == len(bench.timers), "its session has ended"
        await bench.advance(2 * SESSION_MS)
        assert ErrorCode.NOT_COORDINATOR == bench.groups.heartbeat("g", sender)

        await bench.groups.attach(G)
        assert ErrorCode.NONE == bench.groups.heartbeat("g", sender)
        synced = await bench.groups.sync(sync_command(joined.member_id, joined.generation))
        assert ErrorCode.NONE == synced.error
        await bench.advance(2 * SESSION_MS)
        assert ErrorCode.UNKNOWN_MEMBER_ID == bench.groups.heartbeat("g", sender)


async def test_members_of_the_consumer_protocol_continue_with_their_epochs() -> None:
    async with coordinator(catalog=CatalogOfTest(t=2)) as bench:
        joined = await bench.groups.consumer_heartbeat(consumer_join("a", "t"))
        before = bench.groups.describe_consumer_group("g")
        await moved(bench)
        assert before == bench.groups.describe_consumer_group("g")
        again = await bench.groups.consumer_heartbeat(command("a", joined.epoch))
        assert (ErrorCode.NONE, joined.epoch) == (again.error, again.epoch)


async def test_pending_offsets_move_with_their_group() -> None:
    async with coordinator() as bench:
        offsets = bench.groups.offsets
        assert ErrorCode.NONE == await offsets.add_pending("g", TOOL, 9, {T0: at(5)})
        await bench.groups.detach(G)
        assert ErrorCode.NOT_COORDINATOR == await offsets.add_pending("g", TOOL, 9, {T0: at(6)})
        assert {"g"} == await offsets.write_markers(9, {"g"}, True)
        await bench.groups.attach(G)
        assert offsets.is_unstable("g", T0)
        assert not await offsets.write_markers(9, {"g"}, True)
        assert (False, at(5)) == (offsets.is_unstable("g", T0), offsets.committed("g", T0))


async def test_offsets_of_a_deleted_topic_stay_in_detached_shards() -> None:
    """Also while the detached shard waits for its writes: it begins no other."""
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        for group in "gh":
            assert ErrorCode.NONE == await bench.commit(T0, at(5), group=group)
        hold = engine.hold_next("commit")
        committing = await bench.start(bench.commit(T0, at(6)))
        await hold.reached()
        detaching = await bench.start(bench.groups.detach(G))
        forgetting = await bench.start(bench.groups.offsets.forget_topic(TOPIC_ID))
        hold.release()
        await asyncio.gather(committing, detaching, forgetting)
        await bench.groups.attach(G)
        committed = bench.groups.offsets.committed
        assert [at(6), None] == [committed(group, T0) for group in "gh"]


async def test_retention_does_not_pass_groups_that_are_served_elsewhere() -> None:
    async with coordinator() as bench:
        assert ErrorCode.NONE == await bench.commit(T0, at(5), group="h")
        assert 5 == bench.groups.offsets.lowest_committed("t", TOPIC_ID, 0)
        await bench.groups.detach(G)
        assert 0 == bench.groups.offsets.lowest_committed("t", TOPIC_ID, 0)


async def test_a_shard_with_a_row_that_cannot_be_read_stays_detached() -> None:
    async with coordinator() as bench:
        assert ErrorCode.NONE == await bench.commit(T0, at(5))
        await bench.groups.detach(G)
        key = encode_group_key("g")
        await bench.store.put_rows([(key, b"\x63")])
        with pytest.raises(UnreadableRow, match="'g'"):
            await bench.groups.attach(G)
        assert ErrorCode.NOT_COORDINATOR == bench.groups.error("g")
        assert ErrorCode.NONE == await bench.commit(T0, at(5), group="h")
        await bench.store.put_rows([(key, None)])
        await bench.groups.attach(G)
        assert at(5) == bench.groups.offsets.committed("g", T0)


async def test_a_start_attaches_all_shards_with_one_scan_of_each_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        for number in range(100):
            assert ErrorCode.NONE == await bench.commit(T0, at(1), group=f"g{number}")
    scans: list[bytes] = []
    scan_rows = LedgerStore.scan_rows

    def counted(store: LedgerStore, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        scans.append(prefix)
        return scan_rows(store, prefix)

    monkeypatch.setattr(LedgerStore, "scan_rows", counted)
    async with coordinator(engine=engine) as bench:
        assert 100 == bench.groups.group_count
    for kind in (b"group\x01", b"offset\x01", b"pending-offset\x01"):
        assert 1 == scans.count(kind)
