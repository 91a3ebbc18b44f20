"""Groups of the consumer protocol over a real store: their beginning, migration and end."""

import asyncio
from dataclasses import replace

from kledger.gateway.coordinator.consumer_messages import (
    LEAVE_EPOCH,
    HeartbeatCommand,
    HeartbeatResult,
    TopicIdPartition,
)
from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import JoinResult, LeavingMember, RequestingMember
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger.testing import FaultyEngine
from kledger.offsets import TopicPartition
from tests.gateway.coordinator.consumer_words import (
    SESSION_MS,
    CatalogOfTest,
    assignment_of,
    command,
    join_command,
    subscribed,
)
from tests.gateway.coordinator.group_words import join_command as classic_join
from tests.gateway.coordinator.group_words import sync_command
from tests.gateway.coordinator.shell_words import CoordinatorBench, at, coordinator

PARTITION = TopicPartition("t", 0)
READS_T = (("range", subscribed("t")),)


async def ask(bench: CoordinatorBench, asked: HeartbeatCommand) -> HeartbeatResult:
    return await bench.groups.consumer_heartbeat(asked)


async def join(bench: CoordinatorBench, member_id: str = "a") -> HeartbeatResult:
    return await ask(bench, join_command(member_id, "t"))


def kinds(bench: CoordinatorBench) -> list[tuple[str, str, str]]:
    return [(one.group_id, one.group_type, one.state) for one in bench.groups.list_groups()]


async def test_group_exists_from_its_first_member_on() -> None:
    async with coordinator(catalog=CatalogOfTest(t=2)) as bench:
        assert ErrorCode.GROUP_ID_NOT_FOUND == (await ask(bench, command("a", 1))).error
        refused = await ask(bench, join_command("a", topic_regex="("))
        assert ErrorCode.INVALID_REGULAR_EXPRESSION == refused.error
        assert [] == kinds(bench)
        assert ErrorCode.NONE == (await join(bench)).error
        assert [("g", "consumer", "Stable")] == kinds(bench)
        description = bench.groups.describe_consumer_group("g")
        assert description is not None
        assert "a" == description.members[0].member_id
        assert bench.groups.describe("g") is None
        assert bench.groups.describe_consumer_group("x") is None


async def test_members_survive_a_restart_and_expire_after_it() -> None:
    engine = FaultyEngine(None)
    catalog = CatalogOfTest(t=2)
    async with coordinator(engine=engine, catalog=catalog) as bench:
        joined = await join(bench)
        before = bench.groups.describe_consumer_group("g")
    async with coordinator(engine=engine, catalog=catalog) as bench:
        assert before == bench.groups.describe_consumer_group("g")
        assert ErrorCode.NONE == (await ask(bench, command("a", joined.epoch))).error
        await bench.advance(SESSION_MS)
        await bench.written()
        assert [("g", "consumer", "Empty")] == kinds(bench)
    async with coordinator(engine=engine, catalog=catalog) as bench:
        assert [("g", "consumer", "Empty")] == kinds(bench)


async def test_heartbeat_is_answered_when_it_is_durable_or_failed() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine, catalog=CatalogOfTest(t=2)) as bench:
        assert ErrorCode.NONE == (await join(bench)).error
        before = bench.groups.describe_consumer_group("g")
        engine.fail_next("commit")
        assert ErrorCode.COORDINATOR_NOT_AVAILABLE == (await join(bench, "b")).error
        assert before == bench.groups.describe_consumer_group("g")
        assert ErrorCode.NONE == (await join(bench, "b")).error


async def test_protocols_follow_each_other_but_never_mix_without_migration() -> None:
    """Row 109: members of the other protocol are rejected until the group is empty."""
    engine = FaultyEngine(None)
    catalog = CatalogOfTest(t=2)
    alone = GroupConfig(consumer_migration_policy="disabled")
    async with coordinator(alone, engine=engine, catalog=catalog) as bench:
        classic = await bench.stable(protocols=READS_T)
        assert ErrorCode.GROUP_ID_NOT_FOUND == (await join(bench)).error
        await bench.commit(
            PARTITION, at(7), RequestingMember(classic.member_id, classic.generation)
        )
        await bench.advance(60_000)
        assert [("g", "classic", "Empty")] == kinds(bench)
        assert ErrorCode.NONE == (await join(bench)).error
        assert 7 == offset_of(bench)
        refused = await bench.groups.join(classic_join())
        assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL == refused.error
        assert ErrorCode.UNKNOWN_MEMBER_ID == bench.groups.heartbeat("g", RequestingMember("a", 1))
        await ask(bench, command("a", -1))
    async with coordinator(alone, engine=engine, catalog=catalog) as bench:
        assert [("g", "consumer", "Empty")] == kinds(bench)
        await bench.stable()
        await bench.written()
    async with coordinator(alone, engine=engine, catalog=catalog) as bench:
        assert [("g", "classic", "Stable")] == kinds(bench)
        assert 7 == offset_of(bench)


async def classic_round(bench: CoordinatorBench, member_id: str, owned: str = "") -> JoinResult:
    """Rejoin as a classic member, and sync."""
    return await bench.groups.join(
        classic_join(member_id, protocols=(("range", subscribed("t", owned=owned)),))
    )


async def assigned(bench: CoordinatorBench, joined: JoinResult) -> bytes:
    answer = await bench.groups.sync(sync_command(joined.member_id, joined.generation))
    assert ErrorCode.NONE == answer.error
    return answer.assignment


async def test_row_109_group_with_members_is_upgraded_and_downgraded() -> None:
    """As observed with Apache Kafka 4.3: no partition is assigned before it is free."""
    engine = FaultyEngine(None)
    catalog = CatalogOfTest(t=4)
    async with coordinator(engine=engine, catalog=catalog) as bench:
        old = await bench.stable(protocols=READS_T, assignments="0123")
        sender = RequestingMember(old.member_id, old.generation)
        new = await join(bench)
        assert (2, frozenset()) == (new.epoch, new.assignment)
        assert [("g", "consumer", "Reconciling")] == kinds(bench)
        assert bench.groups.describe("g") is None
        assert ErrorCode.REBALANCE_IN_PROGRESS == bench.groups.heartbeat("g", sender)
        assert ErrorCode.NONE == await bench.commit(PARTITION, at(7), sender)
        kept = await classic_round(bench, old.member_id, owned="0123")
        assert (1, "consumer", "range") == (
            kept.generation,
            kept.protocol_type,
            kept.protocol_name,
        )
        assert assignment_of("t", "01") == await assigned(bench, kept)
        assert (await ask(bench, command("a", 2))).assignment is None
    async with coordinator(engine=engine, catalog=catalog) as bench:
        moved = await classic_round(bench, old.member_id, owned="01")
        assert 2 == moved.generation
        assert assignment_of("t", "01") == await assigned(bench, moved)
        assert catalog.parts("t", 2, 3) == (await ask(bench, command("a", 2))).assignment
        sender = RequestingMember(old.member_id, moved.generation)
        assert ErrorCode.NONE == bench.groups.heartbeat("g", sender)
        stale = RequestingMember(old.member_id, old.generation)
        assert ErrorCode.ILLEGAL_GENERATION == bench.groups.heartbeat("g", stale)
        assert ErrorCode.ILLEGAL_GENERATION == await bench.commit(PARTITION, at(8), stale)
        assert [("g", "consumer", "Stable")] == kinds(bench)
        await ask(bench, command("a", -1))
        assert [("g", "classic", "PreparingRebalance")] == kinds(bench)
        assert ErrorCode.GROUP_ID_NOT_FOUND == (await ask(bench, command("a", 2))).error
        assert ErrorCode.REBALANCE_IN_PROGRESS == bench.groups.heartbeat("g", sender)
        assert ErrorCode.NONE == await bench.commit(PARTITION, at(9), sender)
        again = await bench.join(old.member_id, protocols=READS_T)
        assert (3, old.member_id) == (again.generation, again.leader)


async def test_group_with_only_classic_members_is_downgraded_after_a_restart() -> None:
    engine = FaultyEngine(None)
    catalog = CatalogOfTest(t=4)
    async with coordinator(engine=engine, catalog=catalog) as bench:
        await bench.stable(protocols=READS_T, assignments="0123")
        await join(bench)
        await ask(bench, command("a", -1))
        await bench.written()
    async with coordinator(engine=engine, catalog=catalog) as bench:
        assert [("g", "classic", "PreparingRebalance")] == kinds(bench)


async def test_group_with_other_metadata_is_not_upgraded() -> None:
    async with coordinator(catalog=CatalogOfTest(t=4)) as bench:
        await bench.stable(protocols=(("range", b"?"),))
        assert ErrorCode.GROUP_ID_NOT_FOUND == (await join(bench)).error
        assert [("g", "classic", "Stable")] == kinds(bench)


async def test_rejected_heartbeat_changes_no_protocol() -> None:
    async with coordinator(catalog=CatalogOfTest(t=4)) as bench:
        await bench.stable(protocols=READS_T, assignments="0123")
        refused = await ask(bench, join_command("a", topic_regex="("))
        assert ErrorCode.INVALID_REGULAR_EXPRESSION == refused.error
        assert [("g", "classic", "Stable")] == kinds(bench)


async def test_group_is_upgraded_only_after_its_rebalance() -> None:
    async with coordinator(catalog=CatalogOfTest(t=4)) as bench:
        await bench.join(protocols=READS_T)
        assert ErrorCode.COORDINATOR_NOT_AVAILABLE == (await join(bench)).error


async def test_timers_of_the_old_form_do_nothing_any_more() -> None:
    """The session of a classic member continues, and ends, in the new form alone."""
    async with coordinator(catalog=CatalogOfTest(t=4)) as bench:
        await bench.stable(protocols=READS_T, assignments="0123")
        new = await join(bench)
        await bench.advance(10_000)
        await bench.written()
        assert [("g", "consumer", "Assigning")] == kinds(bench)
        answer = await ask(bench, command("a", new.epoch))
        assert bench_parts(4) == answer.assignment


def bench_parts(count: int) -> frozenset[TopicIdPartition]:
    return CatalogOfTest(t=count).parts("t")


def offset_of(bench: CoordinatorBench) -> int | None:
    committed = bench.groups.offsets.committed("g", PARTITION)
    return None if committed is None else committed.offset


async def test_fenced_member_cannot_commit() -> None:
    async with coordinator(catalog=CatalogOfTest(t=2)) as bench:
        joined = await join(bench)
        sender = RequestingMember("a", joined.epoch, uses_member_epoch=True)
        assert ErrorCode.NONE == await bench.commit(PARTITION, at(3), sender)
        old = replace(sender, generation=joined.epoch - 1)
        assert ErrorCode.STALE_MEMBER_EPOCH == await bench.commit(PARTITION, at(4), old)
        await bench.advance(SESSION_MS)
        assert ErrorCode.UNKNOWN_MEMBER_ID == await bench.commit(PARTITION, at(5), sender)
        assert 3 == offset_of(bench)
        unknown = await bench.commit(PARTITION, at(1), sender, group="other")
        assert ErrorCode.GROUP_ID_NOT_FOUND == unknown


async def test_offsets_are_read_with_the_epoch_of_the_group() -> None:
    async with coordinator(catalog=CatalogOfTest(t=2)) as bench:
        joined = await join(bench)
        check = bench.groups.offsets.check_fetch
        assert ErrorCode.NONE == check("g", "a", joined.epoch)
        assert ErrorCode.STALE_MEMBER_EPOCH == check("g", "a", 9)
        assert ErrorCode.NONE == check("other", "a", 9)


async def test_group_is_deleted_when_it_is_empty_and_its_topics_are_kept_before() -> None:
    engine = FaultyEngine(None)
    catalog = CatalogOfTest(t=2)
    async with coordinator(engine=engine, catalog=catalog) as bench:
        joined = await join(bench)
        await bench.commit(
            PARTITION, at(3), RequestingMember("a", joined.epoch, uses_member_epoch=True)
        )
        assert [ErrorCode.NON_EMPTY_GROUP] == await bench.groups.offsets.delete_groups(["g"])
        kept = await bench.groups.offsets.delete("g", [PARTITION, TopicPartition("u", 0)])
        assert (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]) == kept
        await ask(bench, command("a", -1))
        engine.fail_next("commit")
        refused = await bench.groups.offsets.delete_groups(["g"])
        assert [ErrorCode.COORDINATOR_NOT_AVAILABLE] == refused
        assert [("g", "consumer", "Empty")] == kinds(bench)
        assert [ErrorCode.NONE] == await bench.groups.offsets.delete_groups(["g"])
        assert [] == kinds(bench)
    async with coordinator(engine=engine, catalog=catalog) as bench:
        assert [] == kinds(bench)


async def test_limits_and_closing() -> None:
    config = GroupConfig(groups_max=1, group_id_bytes_max=3)
    async with coordinator(config, catalog=CatalogOfTest(t=2)) as bench:
        too_long = await ask(bench, join_command("a", "t", group_id="long"))
        assert ErrorCode.INVALID_GROUP_ID == too_long.error
        assert ErrorCode.NONE == (await join(bench)).error
        one_more = await ask(bench, join_command("a", "t", group_id="h"))
        assert ErrorCode.POLICY_VIOLATION == one_more.error
        assert ErrorCode.INVALID_REQUEST == (await ask(bench, command("", 1))).error
        first, second = (bench.groups.new_consumer_member_id() for _ in range(2))
        assert first != second
        bench.groups.close()
        assert ErrorCode.COORDINATOR_NOT_AVAILABLE == (await join(bench)).error


async def test_member_restored_by_a_failed_deletion_has_a_session() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine, catalog=CatalogOfTest(t=2)) as bench:
        await join(bench)
        engine.fail_next("commit")
        leaving = asyncio.ensure_future(ask(bench, command("a", LEAVE_EPOCH)))
        await asyncio.sleep(0)
        errors = await bench.groups.offsets.delete_groups(["g"])
        assert [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2 == [(await leaving).error, *errors]
        assert [("g", "consumer", "Stable")] == kinds(bench)
        await bench.advance(SESSION_MS)
        await bench.written()
        assert [("g", "consumer", "Empty")] == kinds(bench)


async def test_first_member_that_could_not_be_stored_leaves_no_group_of_its_protocol() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine, catalog=CatalogOfTest(t=2)) as bench:
        await bench.commit(PARTITION, at(3))
        engine.fail_next("commit")
        assert ErrorCode.COORDINATOR_NOT_AVAILABLE == (await join(bench)).error
        assert [("g", "classic", "Empty")] == kinds(bench)
        assert 3 == offset_of(bench)
        assert ErrorCode.NONE == (await join(bench)).error


async def test_upgrade_that_could_not_be_stored_leaves_the_classic_group() -> None:
    """Its members had to rebalance."""
    engine = FaultyEngine(None)
    async with coordinator(engine=engine, catalog=CatalogOfTest(t=4)) as bench:
        old = await bench.stable(protocols=READS_T, assignments="0123")
        engine.fail_next("commit")
        assert ErrorCode.COORDINATOR_NOT_AVAILABLE == (await join(bench)).error
        assert [("g", "classic", "Stable")] == kinds(bench)
        sender = RequestingMember(old.member_id, old.generation)
        assert ErrorCode.NONE == bench.groups.heartbeat("g", sender)
        assert assignment_of("t", "0123") == await assigned(bench, old)


async def test_upgraded_group_that_was_deleted_has_no_members_of_before() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine, catalog=CatalogOfTest(t=4)) as bench:
        old = await bench.stable(protocols=READS_T, assignments="0123")
        await join(bench)
        bench.groups.leave("g", (LeavingMember(old.member_id),))
        await ask(bench, command("a", LEAVE_EPOCH))
        hold = engine.hold_next("commit")
        deletion = await bench.start(bench.groups.offsets.delete_groups(["g"]))
        await hold.reached()
        joined = await bench.start(join(bench, "b"))
        hold.release()
        assert ([ErrorCode.NONE], 1) == (await deletion, (await joined).epoch)
        description = bench.groups.describe_consumer_group("g")
        assert description is not None
        assert ["b"] == [each.member_id for each in description.members]


async def test_heartbeat_that_changes_nothing_waits_for_the_write_under_way() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine, catalog=CatalogOfTest(t=2)) as bench:
        hold = engine.hold_next("commit")
        both = [await bench.start(join(bench)) for _ in range(2)]
        await hold.reached()
        assert [False, False] == [each.done() for each in both]
        hold.fail()
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert [unavailable] * 2 == [(await each).error for each in both]


async def test_stopped_store_refuses_a_change_and_answers_what_changes_nothing() -> None:
    async with coordinator(catalog=CatalogOfTest(t=2)) as bench:
        await join(bench)
        await bench.store.close()
        assert ErrorCode.COORDINATOR_NOT_AVAILABLE == (await join(bench, "b")).error
        assert ErrorCode.NONE == (await ask(bench, command("a", 1))).error


async def test_leaving_of_a_classic_member_is_answered_when_it_is_durable_or_failed() -> None:
    """It was answered at once, and the member was still there after a restart."""
    engine = FaultyEngine(None)
    async with coordinator(engine=engine, catalog=CatalogOfTest(t=4)) as bench:
        old = await bench.stable(protocols=READS_T, assignments="0123")
        await join(bench)
        leaving = (LeavingMember(old.member_id),)
        engine.fail_next("commit")
        refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (refused, []) == await bench.groups.leave("g", leaving)
        hold = engine.hold_next("commit")
        answer = await bench.start(bench.groups.leave("g", leaving))
        await hold.reached()
        assert not answer.done()
        hold.release()
        assert (ErrorCode.NONE, [ErrorCode.NONE]) == await answer
