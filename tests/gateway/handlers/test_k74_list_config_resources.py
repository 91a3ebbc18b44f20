"""ListConfigResources, as Apache Kafka 4.3 answers."""

import pytest

from kledger.gateway.wire.messages.k74_list_config_resources import ListConfigResourcesRequest
from tests.gateway.running import RunningGateway, running_gateway

UNSUPPORTED_VERSION = 35
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
TOPICS, NODE = [("a", TOPIC), ("b", TOPIC)], [("1", BROKER)]
METRICS, GROUPS = [("m", CLIENT_METRICS)], [("g", GROUP)]


async def make_all(gateway: RunningGateway) -> None:
    for name in "ab":
        await gateway.create_topic(name)
    services = gateway.services
    for settings, named, changes in (
        (services.client_metrics, "m", {"metrics": "x"}),
        (services.group_settings, "g", {"share.isolation.level": "read_committed"}),
    ):
        await settings.alter(named, changes, replace=False, validate_only=False)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([], TOPICS + NODE + METRICS + GROUPS),
        ([TOPIC], TOPICS),
        ([BROKER], NODE),
        ([BROKER, TOPIC, BROKER], TOPICS + NODE),
        ([LOGGER], []),
        ([GROUP, LOGGER], GROUPS),
        ([CLIENT_METRICS], METRICS),
    ],
)
async def test_things_of_the_types_asked_for_are_listed(
    types: list[int], expected: list[tuple[str, int]]
) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await make_all(gateway)
        answer = await client.ask(ListConfigResourcesRequest(resource_types=types), 1)
        listed = [(each.resource_name, each.resource_type) for each in answer.config_resources]
        assert (0, expected) == (answer.error_code, listed)


async def test_version_0_lists_client_metrics_alone() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await make_all(gateway)
        answer = await client.ask(ListConfigResourcesRequest(), 0)
        listed = [(each.resource_name, each.resource_type) for each in answer.config_resources]
        assert (0, METRICS) == (answer.error_code, listed)


async def test_what_nothing_is_set_for_any_more_is_not_listed() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await make_all(gateway)
        await gateway.services.client_metrics.alter("m", {}, replace=True, validate_only=False)
        await gateway.services.group_settings.alter("g", {}, replace=True, validate_only=False)
        request = ListConfigResourcesRequest(resource_types=[CLIENT_METRICS, GROUP])
        assert [] == (await client.ask(request, 1)).config_resources


async def test_a_type_that_does_not_exist_refuses_the_request() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(ListConfigResourcesRequest(resource_types=[TOPIC, 9]), 1)
        assert (UNSUPPORTED_VERSION, []) == (answer.error_code, answer.config_resources)
