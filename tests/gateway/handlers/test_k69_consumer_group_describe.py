"""ConsumerGroupDescribe: groups of this protocol, of the other one, and unknown ones."""

import pytest

from kledger.gateway.handlers.k69_consumer_group_describe import handle
from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k69_consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    TopicPartitions,
)
from tests.gateway.handlers.group_bench import GroupBench, group_bench
from tests.gateway.handlers.test_k68_consumer_group_heartbeat import heartbeat, join


def describe(
    bench: GroupBench, *group_ids: str, version: int = 1, operations: bool = False
) -> list[DescribedGroup]:
    request = ConsumerGroupDescribeRequest(
        group_ids=list(group_ids), include_authorized_operations=operations
    )
    body = encode(handle(bench.context(version), request), version)
    decoded: ConsumerGroupDescribeResponse = decode(
        ConsumerGroupDescribeResponse, version, memoryview(body)
    )
    return decoded.groups


@pytest.mark.parametrize("version", [0, 1])
async def test_group_in_the_middle_of_a_change_shows_both_assignments(version: int) -> None:
    async with group_bench() as bench:
        await join(bench, "a")
        await join(bench, "b")
        (group,) = describe(bench, "g", version=version)
        assert ("Reconciling", 2, 2, "uniform") == (
            group.group_state,
            group.group_epoch,
            group.assignment_epoch,
            group.assignor_name,
        )
        first = group.members[0]
        assert ("a", 1, 1 if version else -1) == (
            first.member_id,
            first.member_epoch,
            first.member_type,
        )
        assert (parts(bench, 0, 1), parts(bench, 0)) == (first.assignment, first.target_assignment)


async def test_partitions_being_revoked_still_count_as_owned() -> None:
    async with group_bench() as bench:
        await join(bench, "a")
        await join(bench, "b")
        answer = await heartbeat(bench, "a", 1)
        assert answer.assignment is not None
        assert [[0]] == [one.partitions for one in answer.assignment.topic_partitions]
        (group,) = describe(bench, "g")
        assert parts(bench, 0, 1) == group.members[0].assignment


def parts(bench: GroupBench, *numbers: int) -> Assignment:
    topic = TopicPartitions(topic_id=bench.topic.id, topic_name="t", partitions=list(numbers))
    return Assignment(topic_partitions=[topic])


async def test_topic_that_was_deleted_is_left_out() -> None:
    async with group_bench() as bench:
        await join(bench, "a")
        await bench.services.registry.delete("t")
        (group,) = describe(bench, "g")
        assert Assignment() == group.members[0].assignment


async def test_other_groups_are_not_found() -> None:
    async with group_bench() as bench:
        await bench.stable(group_id="classic")
        errors = [group.error_code for group in describe(bench, "classic", "missing", "")]
        not_found = ErrorCode.GROUP_ID_NOT_FOUND
        assert [not_found, not_found, ErrorCode.INVALID_GROUP_ID] == errors


async def test_operations_are_included_on_request() -> None:
    async with group_bench() as bench:
        await join(bench, "a")
        await heartbeat(bench, "a", -1)
        (plain,), (asked,) = describe(bench, "g"), describe(bench, "g", operations=True)
        assert ("Empty", "Empty") == (plain.group_state, asked.group_state)
        assert plain.authorized_operations < 0 < asked.authorized_operations
