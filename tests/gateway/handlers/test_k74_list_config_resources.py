"""ListConfigResources, as Apache Kafka 4.3 answers."""

import pytest

from gateway.wire.messages.k74_list_config_resources import ListConfigResourcesRequest
from tests.gateway.running import running_gateway

UNSUPPORTED_VERSION = 35
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
TOPICS, NODE = [("a", TOPIC), ("b", TOPIC)], [("1", BROKER)]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([], TOPICS + NODE),
        ([TOPIC], TOPICS),
        ([BROKER], NODE),
        ([BROKER, TOPIC, BROKER], TOPICS + NODE),
        ([LOGGER, CLIENT_METRICS, GROUP], []),
    ],
)
async def test_things_of_the_types_asked_for_are_listed(
    types: list[int], expected: list[tuple[str, int]]
) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        for name in "ab":
            await gateway.create_topic(name)
        answer = await client.ask(ListConfigResourcesRequest(resource_types=types), 1)
        listed = [(each.resource_name, each.resource_type) for each in answer.config_resources]
        assert (0, expected) == (answer.error_code, listed)


async def test_version_0_lists_client_metrics_alone() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic("a")
        answer = await client.ask(ListConfigResourcesRequest(), 0)
        assert (0, []) == (answer.error_code, answer.config_resources)


async def test_a_type_that_does_not_exist_refuses_the_request() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(ListConfigResourcesRequest(resource_types=[TOPIC, 9]), 1)
        assert (UNSUPPORTED_VERSION, []) == (answer.error_code, answer.config_resources)
