"""What has settings: topics, this node and all nodes, groups, subscriptions to metrics."""

import pytest

from kledger.gateway.api_errors import ApiError
from kledger.gateway.configs.config_resources import (
    CONFIGURABLE,
    BrokerConfigResource,
    ClientMetricsConfigResource,
    ConfigResource,
    GroupConfigResource,
    TopicConfigResource,
    current_list,
)
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.topics import InvalidConfig, InvalidTopicName, TopicsError, UnknownTopic
from tests.gateway.configs.test_resource_requests import Named
from tests.gateway.running import running_gateway

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
LIMIT = "share.delivery.count.limit"


async def test_resources_have_their_targets() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("t")
        configs = gateway.services.configs
        assert isinstance(configs.find(Named("t", TOPIC)), TopicConfigResource)
        assert isinstance(configs.find(Named("1", BROKER)), BrokerConfigResource)
        assert isinstance(configs.find(Named("", BROKER)), BrokerConfigResource)
        assert isinstance(configs.find(Named("g", GROUP)), GroupConfigResource)
        assert isinstance(configs.find(Named("m", METRICS)), ClientMetricsConfigResource)
        for named in (Named("2", BROKER), Named("", GROUP), Named("", METRICS)):
            with pytest.raises(ApiError):
                configs.find(named)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (TOPIC, "", "Default topic resources are not allowed"),
        (GROUP, "", "Default group resources are not allowed"),
        (METRICS, "", "can't be empty"),
        (LOGGER, "1", "Unknown resource type 8,"),
        (99, "x", "Unknown resource type 99,"),
    ],
)
async def test_what_has_no_settings_cannot_be_altered(kind: int, name: str, message: str) -> None:
    async with running_gateway() as gateway:
        with pytest.raises(ApiError, match=message) as caught:
            gateway.services.configs.find_alterable(Named(name, kind))
        assert ErrorCode.INVALID_REQUEST == caught.value.code


@pytest.mark.parametrize(("name", "error"), [("x", UnknownTopic), ("a b", InvalidTopicName)])
async def test_a_topic_that_is_none_cannot_be_altered(name: str, error: type[TopicsError]) -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("t")
        assert isinstance(gateway.services.configs.find_alterable(Named("t")), TopicConfigResource)
        with pytest.raises(error):
            gateway.services.configs.find_alterable(Named(name))


async def test_what_something_is_set_for_has_a_name() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("t")
        names = gateway.services.configs.names()
        assert {TOPIC: ["t"], BROKER: ["1"], METRICS: [], GROUP: []} == names
        assert set(CONFIGURABLE) == names.keys()
        for name, kind, setting in (("m", METRICS, "metrics"), ("g", GROUP, LIMIT)):
            target = gateway.services.configs.find_alterable(Named(name, kind))
            await target.alter({setting: "7"}, replace=False, validate_only=False)
        assert {
            TOPIC: ["t"],
            BROKER: ["1"],
            METRICS: ["m"],
            GROUP: ["g"],
        } == gateway.services.configs.names()


async def test_lists_are_read_and_other_settings_are_none() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("t")
        configs = gateway.services.configs
        targets: list[tuple[ConfigResource, str, str]] = [
            (configs.find(Named("t", TOPIC)), "cleanup.policy", "retention.ms"),
            (
                configs.find(Named("1", BROKER)),
                "log.cleanup.policy",
                "max.connections",
            ),
            (
                configs.find(Named("", BROKER)),
                "log.cleanup.policy",
                "max.connections",
            ),
        ]
        for target, a_list, no_list in targets:
            assert ["delete"] == current_list(target, a_list, "APPEND")
            for name in (no_list, "nope"):
                with pytest.raises(
                    InvalidConfig, match=r"^Can't APPEND to key .* because its type is not LIST"
                ):
                    current_list(target, name, "APPEND")


async def test_lists_of_subscriptions_can_only_be_set() -> None:
    async with running_gateway() as gateway:
        for name in ("metrics", "match"):
            with pytest.raises(
                InvalidConfig, match=r"^Can't APPEND to key .* because its type is not LIST"
            ):
                current_list(gateway.services.configs.find(Named("m", METRICS)), name, "APPEND")


@pytest.mark.parametrize(
    ("replace", "expected"),
    [(True, {"flush.ms": "4"}), (False, {"retention.bytes": "2", "flush.ms": "4"})],
)
async def test_a_topic_is_replaced_or_added_to_and_only_checked_when_asked(
    *, replace: bool, expected: dict[str, str]
) -> None:
    async with running_gateway() as gateway:
        before = {"retention.ms": "1", "retention.bytes": "2"}
        topic = await gateway.create_topic("t", configs=before)
        target = gateway.services.configs.find_alterable(Named("t"))
        changes = {"retention.ms": None, "flush.ms": "4"}
        for validate_only, after in ((True, before), (False, expected)):
            await target.alter(changes, replace=replace, validate_only=validate_only)
            assert after == topic.configs


async def test_changes_are_made_where_they_belong() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t")
        configs = gateway.services.configs
        for named, name in (
            (Named("t"), "flush.ms"),
            (Named("1", BROKER), "log.retention.ms"),
            (Named("g", GROUP), LIMIT),
            (Named("m", METRICS), "metrics"),
        ):
            target = configs.find(named)
            await target.alter({name: "7"}, replace=False, validate_only=False)
            assert "7" == target.value(name)
            assert ["7"] == [each.value for each in target.entries() if each.name == name]
            assert name in target.keys
        assert {"flush.ms": "7"} == topic.configs
        assert {"log.retention.ms": "7"} == gateway.services.broker_settings.of("1")
        assert {LIMIT: "7"} == gateway.services.group_settings.of("g")
        assert {"metrics": "7"} == gateway.services.client_metrics.of("m")
