"""DescribeTopicPartitions; row 26 of docs/SCENARIOS.md, and what Apache Kafka 4.3 answers."""

import pytest

from kledger.gateway.handlers import k75_describe_topic_partitions
from kledger.gateway.wire.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)
from tests.gateway.running import RunningGateway, running_gateway

UNKNOWN_TOPIC, INVALID_TOPIC, INVALID_REQUEST = 3, 17, 42
ALL_OPERATIONS = 3576
TopicPartition = tuple[str, int]


async def describe(
    gateway: RunningGateway, *names: str, limit: int = 2000, cursor: TopicPartition | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    async with gateway.client() as client:
        response: DescribeTopicPartitionsResponse = await client.ask(request, 0)
        return response


def places(response: DescribeTopicPartitionsResponse) -> list[TopicPartition]:
    return [
        (topic.name or "", partition.partition_index)
        for topic in response.topics
        for partition in topic.partitions
    ]


def cursor_of(response: DescribeTopicPartitionsResponse) -> TopicPartition | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


async def test_row_26_lists_of_eligible_leaders_are_empty_not_null() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t")
        response = await describe(gateway, "t")
        (found,) = response.topics
        assert (0, "t", topic.id, False, ALL_OPERATIONS) == (
            found.error_code,
            found.name,
            found.topic_id,
            found.is_internal,
            found.topic_authorized_operations,
        )
        assert [
            DescribeTopicPartitionsResponsePartition(
                partition_index=0,
                leader_id=1,
                leader_epoch=0,
                replica_nodes=[1],
                isr_nodes=[1],
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
        ] == found.partitions
        assert response.next_cursor is None


@pytest.mark.parametrize("asked", [(), ("c", "a", "b", "a")])
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
async def test_row_26_pages_hold_every_partition_once_in_order(
    asked: tuple[str, ...], limit: int
) -> None:
    async with running_gateway() as gateway:
        for name, count in (("b", 1), ("a", 3), ("c", 2)):
            await gateway.services.registry.create(name, partitions=count)
        seen: list[TopicPartition] = []
        cursor: TopicPartition | None = None
        while True:
            response = await describe(gateway, *asked, limit=limit, cursor=cursor)
            page = places(response)
            assert 0 < len(page) <= limit
            seen += page
            cursor = cursor_of(response)
            if cursor is None:
                break
        assert [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("c", 0), ("c", 1)] == seen


@pytest.mark.parametrize("limit", [0, -1])
async def test_row_26_a_page_holds_at_least_one_partition(limit: int) -> None:
    async with running_gateway() as gateway:
        await gateway.services.registry.create("t", partitions=2)
        response = await describe(gateway, "t", limit=limit)
        assert ([("t", 0)], ("t", 1)) == (places(response), cursor_of(response))


async def test_a_page_has_a_limit_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k75_describe_topic_partitions, "PARTITIONS_PER_PAGE_MAX", 2)
    async with running_gateway() as gateway:
        await gateway.services.registry.create("t", partitions=3)
        response = await describe(gateway, "t", limit=2_000_000)
        assert ([("t", 0), ("t", 1)], ("t", 2)) == (places(response), cursor_of(response))


async def test_unknown_and_bad_names_are_answered_in_order() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("t")
        response = await describe(gateway, "z", "t", "a b", "")
        assert [
            ("", INVALID_TOPIC),
            ("a b", INVALID_TOPIC),
            ("t", 0),
            ("z", UNKNOWN_TOPIC),
        ] == [(topic.name, topic.error_code) for topic in response.topics]
        assert {ALL_OPERATIONS} == {each.topic_authorized_operations for each in response.topics}


@pytest.mark.parametrize("cursor", [("t", -1), ("s", 0), ("zzz", 0)])
async def test_row_26_cursor_that_cannot_be_is_refused_for_every_topic(
    cursor: TopicPartition,
) -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("t")
        response = await describe(gateway, "t", "u", cursor=cursor)
        assert [("t", INVALID_REQUEST), ("u", INVALID_REQUEST)] == [
            (topic.name, topic.error_code) for topic in response.topics
        ]
        assert [] == places(response)


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [
        (("a", 1), [("a", 1), ("c", 0)]),
        (("a", 9), [("c", 0)]),
        (("b", 7), [("c", 0)]),
        (("z", 0), []),
    ],
)
async def test_row_26_cursor_continues_after_deleted_topics(
    cursor: TopicPartition, expected: list[TopicPartition]
) -> None:
    async with running_gateway() as gateway:
        await gateway.services.registry.create("a", partitions=2)
        await gateway.services.registry.create("c", partitions=1)
        assert expected == places(await describe(gateway, cursor=cursor))
