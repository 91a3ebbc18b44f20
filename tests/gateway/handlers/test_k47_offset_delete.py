"""OffsetDelete: offsets of subscribed topics are kept."""

from typing import Any

from kledger.gateway.handlers import k47_offset_delete
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k11_join_group import JoinGroupRequestProtocol
from kledger.gateway.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.gateway.coordinator.consumer.test_consumer_protocol_plan_topics import subscription
from tests.gateway.handlers.group_bench import GroupBench, group_bench


async def delete(bench: GroupBench, *topics: str, group_id: str = "g") -> OffsetDeleteResponse:
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1, 2)
                ],
            )
            for name in topics
        ],
    )
    return await k47_offset_delete.handle(bench.context(0), request)


def errors(response: OffsetDeleteResponse) -> list[list[int]]:
    return [[p.error_code for p in topic.partitions] for topic in response.topics]


async def test_row_103_subscribed_topics_stay() -> None:
    async with group_bench() as bench:
        await bench.services.registry.create("u", partitions=3)
        reads_t: dict[str, Any] = {
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=subscription("t"))]
        }
        member_id = await bench.stable(**reads_t)
        for topic in ("t", "u"):
            error = await bench.commit(
                topic=topic, member_id=member_id, generation_id_or_member_epoch=1
            )
            assert error == ErrorCode.NONE

        response = await delete(bench, "t", "u", "missing")

        subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert errors(response) == [
            [subscribed, subscribed, unknown],
            [ErrorCode.NONE] * 3,
            [unknown] * 3,
        ]
        assert [topic.name for topic in response.topics] == ["t", "u", "missing"]
        assert (bench.fetched("t"), bench.fetched("u")) == (7, -1)


async def test_offsets_of_an_empty_group_are_deleted_in_any_spelling() -> None:
    async with group_bench() as bench:
        await bench.commit()

        response = await delete(bench, "persistent://public/default/t")

        assert errors(response)[0][:2] == [ErrorCode.NONE] * 2
        assert bench.fetched() == -1


async def test_groups_whose_offsets_cannot_be_deleted() -> None:
    async with group_bench() as bench:
        await bench.stable(group_id="connect", protocol_type="connect")

        busy = await delete(bench, "t", group_id="connect")
        assert busy == OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
        unknown = await delete(bench, "t", group_id="unknown")
        assert unknown == OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        empty = await delete(bench, "t", group_id="")
        assert empty == OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
