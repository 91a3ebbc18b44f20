"""Topics of other namespaces than the default one, to Kafka's clients: only their names differ."""

import pytest

from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from kledger.gateway.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kledger.gateway.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kledger.gateway.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kledger.topics import TopicDefaults
from tests.gateway.running import batch, fetch, produce, running_gateway

UNKNOWN_TOPIC, INVALID_TOPIC = 3, 17
TOPIC, TOPIC_SOURCE, ALL_NODES_SOURCE = 2, 1, 3
NAME = "shop/eu/orders"
SPELLED = f"persistent://{NAME}"


def creation(name: str) -> CreateTopicsRequest:
    new = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
    return CreateTopicsRequest(topics=[new])


async def test_a_topic_is_created_listed_written_and_read() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.services.registry.create_namespace("shop/eu")
        await gateway.create_topic("orders")
        created = await client.ask(creation(NAME), 7)
        assert [(NAME, 0)] == [(each.name, each.error_code) for each in created.topics]
        listed = await client.ask(MetadataRequest(topics=None), 13)
        assert ["orders", NAME] == [each.name for each in listed.topics]
        asked = [MetadataRequestTopic(name=each) for each in (NAME, SPELLED)]
        found = await client.ask(MetadataRequest(topics=asked), 13)
        assert [(0, NAME), (0, SPELLED)] == [(each.error_code, each.name) for each in found.topics]
        assert 1 == len({each.topic_id for each in found.topics})
        for number, name in enumerate((NAME, SPELLED)):
            written = await client.ask(produce({0: batch(b"%d" % number)}, topic=name), 9)
            (part,) = written.responses[0].partition_responses
            assert (0, number) == (part.error_code, part.base_offset)
        for name, end in ((NAME, 2), (SPELLED, 2), ("orders", 0)):
            read = await client.ask(fetch({0: 0}, topic=name), 12)
            (partition,) = read.responses[0].partitions
            assert (0, end) == (partition.error_code, partition.high_watermark)


@pytest.mark.parametrize("is_automatic", [False, True])
async def test_a_topic_of_a_missing_namespace(is_automatic: bool) -> None:
    """With a producer's own retries a namespace would not come; Kafka's clients give up at once."""
    async with running_gateway() as gateway, gateway.client() as client:
        registry = gateway.services.registry
        registry.change_defaults(TopicDefaults(namespaces_auto_create=is_automatic))
        expected = 0 if is_automatic else INVALID_TOPIC
        created = await client.ask(creation(NAME), 7)
        (result,) = created.topics
        assert expected == result.error_code
        assert is_automatic or "namespaces.auto.create" in (result.error_message or "")
        asked = [MetadataRequestTopic(name="shop/us/orders")]
        found = await client.ask(MetadataRequest(topics=asked), 13)
        assert expected == found.topics[0].error_code
        asked_without_creation = MetadataRequest(
            topics=[MetadataRequestTopic(name="shop/asia/orders")], allow_auto_topic_creation=False
        )
        found = await client.ask(asked_without_creation, 13)
        assert UNKNOWN_TOPIC == found.topics[0].error_code
        assert (3 if is_automatic else 1) == len(registry.namespaces.all())


@pytest.mark.parametrize("name", ["shop/orders", "a/b/c/d", "shop//orders", "shop/../orders"])
async def test_bad_names_are_refused(name: str) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        created = await client.ask(creation(name), 7)
        assert INVALID_TOPIC == created.topics[0].error_code
        found = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 13)
        assert INVALID_TOPIC == found.topics[0].error_code
        described = await client.ask(
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)]), 0
        )
        assert INVALID_TOPIC == described.topics[0].error_code


async def test_settings_of_a_namespace_are_shown_as_those_of_all_nodes() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        registry = gateway.services.registry
        await registry.create_namespace("shop/eu")
        key = "kledger.compaction.threshold.bytes"
        await registry.alter_namespace_configs("shop/eu", {key: "5"})
        await gateway.create_topic(NAME)
        for own, source, value in ((None, ALL_NODES_SOURCE, "5"), ("6", TOPIC_SOURCE, "6")):
            await registry.alter_configs(NAME, {key: own})
            asked = DescribeConfigsResource(
                resource_type=TOPIC, resource_name=SPELLED, configuration_keys=[key]
            )
            request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
            (entry,) = (await client.ask(request, 4)).results[0].configs
            assert (value, source) == (entry.value, entry.config_source)
            assert (key, "5", ALL_NODES_SOURCE) in [
                (each.name, each.value, each.source) for each in entry.synonyms
            ]
