"""Offsets of transactions that another broker coordinates."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kledger.gateway.coordinator.coordinator_shards_state import OFFSETS_TOPIC, shard_of
from kledger.gateway.coordinator.group_messages import RequestingMember
from kledger.gateway.coordinator.groups.group_offsets import GroupOffsets
from kledger.gateway.coordinator.shard_counts import COORDINATOR_SHARD_COUNT
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerError
from kledger.ledger.testing import FaultyEngine
from kledger.offsets import TopicPartition
from tests.gateway.coordinator.shell_words import at, coordinator

T0 = TopicPartition("t", 0)
TOOL = RequestingMember("", -1)
G, H = (shard_of(each, COORDINATOR_SHARD_COUNT) for each in "gh")


def add(
    offsets: GroupOffsets, verify: Callable[[], Awaitable[ErrorCode]], producer_id: int = 9
) -> Awaitable[ErrorCode]:
    return offsets.verify_and_add_pending("g", TOOL, producer_id, {T0: at(5)}, verify)


async def confirmed() -> ErrorCode:
    return ErrorCode.NONE


async def fenced() -> ErrorCode:
    return ErrorCode.PRODUCER_FENCED


async def test_offsets_are_pending_when_their_coordinator_has_confirmed_them() -> None:
    async with coordinator() as bench:
        offsets = bench.groups.offsets
        assert TopicPartition(OFFSETS_TOPIC, G) == offsets.partition_of("g")
        assert ErrorCode.PRODUCER_FENCED == await add(offsets, fenced)
        assert not offsets.is_unstable("g", T0)
        assert ErrorCode.NONE == await add(offsets, confirmed)
        assert offsets.is_unstable("g", T0)


async def test_what_was_confirmed_before_a_marker_came_is_confirmed_again() -> None:
    """The marker may have ended the transaction, and nothing would ever end the offsets."""
    async with coordinator() as bench:
        offsets = bench.groups.offsets
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[ErrorCode]] = [loop.create_future() for _ in range(3)]

        async def answered(answer: "asyncio.Future[ErrorCode]") -> ErrorCode:
            return await answer

        first = await bench.start(add(offsets, lambda: answered(answers[0])))
        assert {} == await offsets.write_shard_markers(9, {G}, True)
        second = await bench.start(add(offsets, lambda: answered(answers[1])))
        other = await bench.start(add(offsets, lambda: answered(answers[2]), producer_id=8))
        for each in answers:
            each.set_result(ErrorCode.NONE)
        assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS == await first
        assert [ErrorCode.NONE] * 2 == [await second, await other]
        assert not offsets._verifying


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_marker_ends_the_offsets_of_all_groups_of_a_shard(is_commit: bool) -> None:
    async with coordinator() as bench:
        offsets = bench.groups.offsets
        for group in "gh":
            assert ErrorCode.NONE == await offsets.add_pending(group, TOOL, 9, {T0: at(5)})
        assert ErrorCode.NONE == await offsets.add_pending("g", TOOL, 8, {T0: at(6)})
        assert {} == await offsets.write_shard_markers(9, {G}, is_commit)
        assert (at(5) if is_commit else None) == offsets.committed("g", T0)
        assert (None, True) == (offsets.committed("h", T0), offsets.is_unstable("h", T0))
        assert offsets.is_unstable("g", T0), "of the other producer"
        assert {} == await offsets.write_shard_markers(8, {G, H}, False)
        assert not offsets.is_unstable("g", T0)


async def test_shards_that_are_not_here_refuse_markers() -> None:
    async with coordinator() as bench:
        offsets = bench.groups.offsets
        for group in "gh":
            assert ErrorCode.NONE == await offsets.add_pending(group, TOOL, 9, {T0: at(5)})
        await bench.groups.detach([G])
        assert {
            G: ErrorCode.NOT_COORDINATOR,
            -1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            COORDINATOR_SHARD_COUNT: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        } == await offsets.write_shard_markers(9, {G, H, -1, COORDINATOR_SHARD_COUNT}, True)
        assert at(5) == offsets.committed("h", T0)
        await bench.groups.attach([G])
        assert offsets.is_unstable("g", T0)


async def test_a_marker_that_cannot_be_stored_changes_nothing() -> None:
    engine = FaultyEngine(None)
    async with coordinator(engine=engine) as bench:
        offsets = bench.groups.offsets
        assert ErrorCode.NONE == await offsets.add_pending("g", TOOL, 9, {T0: at(5)})
        engine.fail_next("commit")
        with pytest.raises(LedgerError):
            await offsets.write_shard_markers(9, {G}, True)
        assert offsets.is_unstable("g", T0)
