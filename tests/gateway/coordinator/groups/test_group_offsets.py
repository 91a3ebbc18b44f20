"""Commits, deletions and expiry over a real store."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kledger.gateway.coordinator.group_config import GroupConfig
from kledger.gateway.coordinator.group_messages import LeavingMember, RequestingMember
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger.record_table import submit_together
from kledger.ledger.testing import FaultyEngine
from kledger.offsets import TopicPartition
from tests.gateway.coordinator.consumer.test_consumer_protocol_plan_topics import subscription
from tests.gateway.coordinator.group_words import SESSION_MS
from tests.gateway.coordinator.shell_words import (
    TOPIC_ID,
    CoordinatorBench,
    at,
    coordinator,
    settle,
)

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
READS_T = (("range", subscription("t")),)
MINUTE_MS = 60_000
SHORT = GroupConfig(offsets_retention_minutes=10, offsets_retention_check_interval_ms=MINUTE_MS)
HOUR_SESSION = GroupConfig(
    offsets_retention_minutes=10,
    offsets_retention_check_interval_ms=MINUTE_MS,
    group_max_session_timeout_ms=24 * 60 * MINUTE_MS,
)


async def test_commit_is_answered_and_visible_only_when_it_is_durable() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        hold = engine.hold_next("commit")
        commit = await bench.start(bench.commit(T0, at(7)))
        await hold.reached()
        await settle()
        assert not commit.done()
        assert bench.groups.offsets.committed("g", T0) is None

        hold.release()

        assert await commit == ErrorCode.NONE
        assert bench.groups.offsets.committed("g", T0) == at(7)
        assert dict(bench.groups.offsets.all_committed("g")) == {T0: at(7)}


async def test_commit_that_cannot_be_stored_is_retriable() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        engine.fail_next("commit")

        assert await bench.commit(T0, at(7)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert bench.groups.offsets.committed("g", T0) is None
        assert bench.groups.group_count == 0
        assert await bench.commit(T0, at(7)) == ErrorCode.NONE


async def test_row_97_commit_with_a_generation_needs_a_group() -> None:
    async with coordinator() as bench:
        sender = RequestingMember("a", 1)
        assert await bench.commit(T0, at(1), sender) == ErrorCode.ILLEGAL_GENERATION
        assert await bench.commit(T0, at(1), RequestingMember("", -1, "i")) == ErrorCode.NONE
        assert await bench.commit(T0, at(1), sender) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_commit_whose_caller_is_cancelled_makes_its_group() -> None:
    """Its offsets were stored, and the group could not be listed or deleted until a restart."""
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        hold = engine.hold_next("commit")
        commit = await bench.start(bench.commit(T0, at(1)))
        await hold.reached()
        commit.cancel()
        hold.release()
        await bench.written()

        assert bench.groups.offsets.committed("g", T0) == at(1)
        assert bench.groups.describe("g") is not None
        assert await bench.groups.offsets.delete_groups(["g"]) == [ErrorCode.NONE]


async def test_group_id_of_a_commit_is_limited() -> None:
    async with coordinator(GroupConfig(group_id_bytes_max=3)) as bench:
        too_long = await bench.commit(T0, at(1), group="äöü")
        assert too_long == ErrorCode.INVALID_GROUP_ID


# Deletion.


async def test_row_103_group_with_members_is_not_deleted() -> None:
    async with coordinator() as bench:
        await bench.stable()
        await bench.commit(T0, at(1), group="tools")

        errors = await bench.groups.offsets.delete_groups(["g", "unknown", "tools"])

        assert errors == [
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.NONE,
        ]


async def test_deleted_group_and_its_offsets_stay_deleted_after_a_restart() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        a = await bench.stable()
        await bench.commit(T0, at(1), RequestingMember(a.member_id, 1))
        bench.groups.leave("g", (LeavingMember(a.member_id),))
        await settle()

        assert await bench.groups.offsets.delete_groups(["g"]) == [ErrorCode.NONE]
        assert bench.groups.describe("g") is None

    async with coordinator(engine=engine) as bench:
        assert bench.groups.describe("g") is None
        assert bench.groups.offsets.committed("g", T0) is None


async def test_group_whose_deletion_cannot_be_stored_stays() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        await bench.commit(T0, at(1))
        engine.fail_next("commit")

        errors = await bench.groups.offsets.delete_groups(["g"])

        assert errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert bench.groups.describe("g") is not None
        assert bench.groups.offsets.committed("g", T0) == at(1)


async def test_deletion_includes_a_commit_being_written() -> None:
    async with coordinator() as bench:
        await bench.commit(T0, at(1))
        late = bench.groups.offsets.commit("g", RequestingMember("", -1), [(T1, at(2))])
        deletion = bench.groups.offsets.delete_groups(["g"])

        committed, deleted = await asyncio.gather(late, deletion)

        assert (committed, deleted) == (ErrorCode.NONE, [ErrorCode.NONE])
        assert dict(bench.groups.offsets.all_committed("g")) == {}
        assert bench.groups.describe("g") is None


async def test_deletion_of_offsets_includes_a_commit_being_written() -> None:
    async with coordinator() as bench:
        await bench.commit(T0, at(1))
        late = bench.groups.offsets.commit("g", RequestingMember("", -1), [(T1, at(2))])
        deletion = bench.groups.offsets.delete("g", [T1])

        committed, deleted = await asyncio.gather(late, deletion)

        assert (committed, deleted) == (ErrorCode.NONE, (ErrorCode.NONE, [ErrorCode.NONE]))
        assert dict(bench.groups.offsets.all_committed("g")) == {T0: at(1)}


async def test_deletion_behind_the_first_commit_of_a_group() -> None:
    async with coordinator() as bench:
        offsets = bench.groups.offsets
        first = [(T0, at(1)), (T1, at(1))]
        commits = [offsets.commit(group, RequestingMember("", -1), first) for group in ("g", "h")]
        answers = await asyncio.gather(
            *commits, offsets.delete("g", [T1, T1]), offsets.delete_groups(["h"])
        )

        assert answers == [0, 0, (ErrorCode.NONE, [ErrorCode.NONE] * 2), [ErrorCode.NONE]]
        assert dict(offsets.all_committed("g")) == {T0: at(1)}
        assert dict(offsets.all_committed("h")) == {}
        assert bench.groups.describe("h") is None


async def delete_group(bench: CoordinatorBench) -> object:
    return await bench.groups.offsets.delete_groups(["g"])


async def delete_offset(bench: CoordinatorBench) -> object:
    return await bench.groups.offsets.delete("g", [T0])


async def forget_topic(bench: CoordinatorBench) -> object:
    await bench.groups.offsets.forget_topic(TOPIC_ID)
    return None


@pytest.mark.parametrize(
    ("delete", "expected"),
    [
        (delete_group, [ErrorCode.COORDINATOR_NOT_AVAILABLE]),
        (delete_offset, (ErrorCode.NONE, [ErrorCode.COORDINATOR_NOT_AVAILABLE])),
        (forget_topic, None),
    ],
)
async def test_deletion_that_fails_behind_the_first_commit_leaves_a_group(
    delete: Callable[[CoordinatorBench], Awaitable[object]], expected: object
) -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        hold = engine.hold_next("commit")
        commit = await bench.start(bench.commit(T0, at(1)))
        await hold.reached()
        engine.fail_next("commit")
        deletion = await bench.start(delete(bench))
        hold.release()

        assert await commit == ErrorCode.NONE
        assert await deletion == expected
        assert bench.groups.offsets.committed("g", T0) == at(1)
        assert bench.groups.describe("g") is not None


async def test_join_during_a_deletion_keeps_the_group() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        a = await bench.stable()
        bench.groups.leave("g", (LeavingMember(a.member_id),))
        await settle()
        hold = engine.hold_next("commit")
        deletion = await bench.start(bench.groups.offsets.delete_groups(["g"]))
        await hold.reached()

        again = await bench.join()
        hold.release()

        assert await deletion == [ErrorCode.NONE]
        sender = RequestingMember(again.member_id, again.generation)
        assert bench.groups.heartbeat("g", sender) == ErrorCode.NONE


async def test_row_103_offsets_of_a_topic_that_is_read_are_not_deleted() -> None:
    async with coordinator() as bench:
        a = await bench.stable(protocols=READS_T)
        sender = RequestingMember(a.member_id, 1)
        for topic_partition in (T0, U0):
            await bench.commit(topic_partition, at(1), sender)

        outcome = await bench.groups.offsets.delete("g", [T0, U0, T1])

        subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        assert outcome == (ErrorCode.NONE, [subscribed, ErrorCode.NONE, subscribed])
        assert bench.groups.offsets.committed("g", T0) == at(1)
        assert bench.groups.offsets.committed("g", U0) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"protocols": (("range", b"?"),)},
            (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]),
        ),
        ({"protocol_type": "connect"}, (ErrorCode.NON_EMPTY_GROUP, [])),
    ],
)
async def test_offsets_of_members_with_unreadable_metadata_are_not_deleted(
    changes: dict[str, Any], expected: object
) -> None:
    async with coordinator() as bench:
        await bench.stable(**changes)

        assert await bench.groups.offsets.delete("g", [T0]) == expected


async def test_offsets_of_an_empty_or_unknown_group() -> None:
    async with coordinator() as bench:
        await bench.commit(T0, at(1))

        assert await bench.groups.offsets.delete("g", [T0, T1]) == (ErrorCode.NONE, [0, 0])
        unknown = await bench.groups.offsets.delete("unknown", [T0])
        assert unknown == (ErrorCode.GROUP_ID_NOT_FOUND, [])


async def test_deleted_topic_deletes_its_offsets() -> None:
    async with coordinator() as bench:
        other = at(1)._replace(topic_id=uuid.UUID(int=2))
        for group in ("g", "h"):
            for topic_partition in (T0, T1):
                await bench.commit(topic_partition, at(1), group=group)
            await bench.commit(U0, other, group=group)

        await bench.groups.offsets.forget_topic(TOPIC_ID)

        for group in ("g", "h"):
            assert set(bench.groups.offsets.all_committed(group)) == {U0}


async def test_deleted_topic_deletes_a_commit_being_written() -> None:
    async with coordinator() as bench:
        late = bench.groups.offsets.commit("g", RequestingMember("", -1), [(T0, at(2))])

        await asyncio.gather(late, bench.groups.offsets.forget_topic(TOPIC_ID))

        assert dict(bench.groups.offsets.all_committed("g")) == {}


# Pending offsets of transactions.


async def add_pending(
    bench: CoordinatorBench, topic_partition: TopicPartition, offset: int
) -> None:
    sender = RequestingMember("", -1)
    pending = bench.groups.offsets.add_pending("g", sender, 9, {topic_partition: at(offset)})
    assert await pending == ErrorCode.NONE


async def end_pending(bench: CoordinatorBench) -> None:
    changes, elsewhere = bench.groups.offsets.end(9, {"g"}, is_commit=True)
    assert not elsewhere
    assert not changes or await submit_together(changes) is None


async def test_row_101_group_with_only_pending_offsets_exists() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        await add_pending(bench, T0, 5)
        assert bench.groups.describe("g") is not None

    async with coordinator(engine=engine) as bench:
        assert bench.groups.describe("g") is not None
        assert bench.groups.offsets.is_unstable("g", T0)


async def test_row_101_deleted_group_deletes_pending_offsets() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        await add_pending(bench, T0, 5)
        await bench.commit(T1, at(1))
        await add_pending(bench, T1, 6)

        assert await bench.groups.offsets.delete_groups(["g"]) == [ErrorCode.NONE]

        assert not bench.groups.offsets.is_unstable("g", T0)
        await end_pending(bench)
        assert bench.groups.describe("g") is None

    async with coordinator(engine=engine) as bench:
        assert bench.groups.describe("g") is None


async def test_row_101_deletion_includes_a_pending_offset_being_written() -> None:
    async with coordinator() as bench:
        await bench.commit(T0, at(1))
        late = bench.groups.offsets.add_pending("g", RequestingMember("", -1), 9, {T1: at(2)})
        _, deleted = await asyncio.gather(late, bench.groups.offsets.delete_groups(["g"]))

        assert deleted == [ErrorCode.NONE]
        assert not bench.groups.offsets.is_unstable("g", T1)
        assert bench.groups.describe("g") is None


async def test_row_101_deleted_offset_is_no_longer_pending() -> None:
    async with coordinator() as bench:
        await add_pending(bench, T0, 5)
        await add_pending(bench, T1, 6)

        assert await bench.groups.offsets.delete("g", [T0]) == (ErrorCode.NONE, [0])

        await end_pending(bench)
        assert dict(bench.groups.offsets.all_committed("g")) == {T1: at(6)}


async def test_row_101_deleted_topic_deletes_pending_offsets() -> None:
    async with coordinator() as bench:
        await add_pending(bench, T0, 5)

        await bench.groups.offsets.forget_topic(TOPIC_ID)

        assert not bench.groups.offsets.is_unstable("g", T0)


async def test_row_101_group_with_pending_offsets_does_not_expire() -> None:
    async with coordinator(SHORT) as bench:
        await bench.commit(T0, at(1, commit_ms=bench.clock.now_ms()))
        await add_pending(bench, T1, 5)
        await minutes(bench, 20)
        assert bench.groups.offsets.committed("g", T0) is None
        assert bench.groups.describe("g") is not None

        await end_pending(bench)

        assert bench.groups.offsets.committed("g", T1) == at(5)


# Expiry, row 102.


async def minutes(bench: CoordinatorBench, count: int) -> None:
    for _ in range(count):
        bench.clock.advance(MINUTE_MS)
        await bench.written()


async def test_row_102_offsets_of_a_group_are_counted_from_when_it_became_empty() -> None:
    async with coordinator(SHORT) as bench:
        a = await bench.stable(protocols=READS_T, session_timeout_ms=1_800_000)
        now_ms = bench.clock.now_ms()
        await bench.commit(T0, at(1, commit_ms=now_ms), RequestingMember(a.member_id, 1))
        await minutes(bench, 20)
        assert bench.groups.offsets.committed("g", T0) is not None

        bench.groups.leave("g", (LeavingMember(a.member_id),))
        await minutes(bench, 9)
        assert bench.groups.offsets.committed("g", T0) is not None
        await minutes(bench, 2)

        assert bench.groups.offsets.committed("g", T0) is None
        assert bench.groups.describe("g") is None


async def test_row_102_moment_of_emptiness_survives_a_restart() -> None:
    engine = FaultyEngine(None)
    async with coordinator(SHORT, engine=engine) as bench:
        a = await bench.stable(protocols=READS_T)
        now_ms = bench.clock.now_ms()
        await bench.commit(T0, at(1, commit_ms=now_ms), RequestingMember(a.member_id, 1))
        bench.groups.leave("g", (LeavingMember(a.member_id),))
        await minutes(bench, 6)
        clock = bench.clock

    async with coordinator(SHORT, engine=engine, clock=clock) as bench:
        await minutes(bench, 2)
        assert bench.groups.offsets.committed("g", T0) is not None
        await minutes(bench, 3)
        assert bench.groups.offsets.committed("g", T0) is None


async def test_row_102_topic_that_a_stable_group_unsubscribed_expires() -> None:
    async with coordinator(HOUR_SESSION) as bench:
        a = await bench.stable(protocols=READS_T, session_timeout_ms=60 * MINUTE_MS)
        now_ms = bench.clock.now_ms()
        for topic_partition in (T0, U0):
            await bench.commit(
                topic_partition, at(1, commit_ms=now_ms), RequestingMember(a.member_id, 1)
            )

        await minutes(bench, 11)

        assert set(bench.groups.offsets.all_committed("g")) == {T0}


async def test_row_102_standalone_offsets_are_counted_from_each_commit() -> None:
    async with coordinator(SHORT) as bench:
        await bench.commit(T0, at(1, commit_ms=bench.clock.now_ms()))
        await minutes(bench, 6)
        await bench.commit(T1, at(1, commit_ms=bench.clock.now_ms()))
        await minutes(bench, 6)
        assert set(bench.groups.offsets.all_committed("g")) == {T1}
        assert bench.groups.describe("g") is not None

        await minutes(bench, 6)

        assert bench.groups.describe("g") is None


async def test_unused_empty_group_is_deleted_by_expiry() -> None:
    async with coordinator(SHORT) as bench:
        await bench.join(requires_known_id=True)
        assert bench.groups.describe("g") is not None

        await bench.advance(SESSION_MS)
        await minutes(bench, 1)

        assert bench.groups.describe("g") is None


async def test_expiry_skips_groups_with_a_commit_being_written() -> None:
    """The old offset is being renewed: its deletion would undo the commit."""
    engine = FaultyEngine(None)
    async with coordinator(SHORT, engine=engine) as bench:
        await bench.commit(T0, at(1, commit_ms=0))
        hold = engine.hold_next("commit")
        commit = await bench.start(bench.commit(T0, at(2, commit_ms=10**12)))
        await hold.reached()
        bench.groups.offsets.expire("g")
        hold.release()

        assert await commit == ErrorCode.NONE
        await settle()
        assert bench.groups.offsets.committed("g", T0) == at(2, commit_ms=10**12)


async def test_expiry_writes_in_batches() -> None:
    async with coordinator(GroupConfig(offsets_expiry_batch_max=2)) as bench:
        for partition in range(5):
            await bench.commit(TopicPartition("t", partition), at(1, commit_ms=-(10**10)))

        left = []
        for _ in range(3):
            bench.groups.offsets.expire("g")
            await settle()
            left.append(len(bench.groups.offsets.all_committed("g")))

        assert left == [3, 1, 0]


async def test_sweep_of_many_groups_takes_several_ticks() -> None:
    async with coordinator(SHORT) as bench:
        for i in range(600):
            await bench.join(group_id=f"g{i}", requires_known_id=True)
        assert bench.groups.group_count == 600
        await bench.advance(SESSION_MS)

        bench.clock.advance(MINUTE_MS - SESSION_MS)
        await settle()
        assert 0 < bench.groups.group_count < 600
        for _ in range(4):
            bench.clock.advance(1)
            await settle()

        assert bench.groups.group_count == 0
