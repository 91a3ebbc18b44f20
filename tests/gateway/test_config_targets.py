"""What can be altered: topics, this node and all nodes, and nothing else."""

import pytest

from gateway.config_targets import BrokerTarget, Target, TopicTarget, current_list, find_target
from gateway.refusals import Refused
from tests.gateway.running import running_gateway
from tests.gateway.test_config_resources import Named, context_of
from topics import InvalidConfig

TOPIC, BROKER, GROUP = 2, 4, 32


async def test_resources_have_their_targets() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("t")
        context = context_of(gateway)
        assert isinstance(find_target(context, Named("t", TOPIC)), TopicTarget)
        assert isinstance(find_target(context, Named("1", BROKER)), BrokerTarget)
        assert isinstance(find_target(context, Named("", BROKER)), BrokerTarget)
        for named in (Named("2", BROKER), Named("g", GROUP)):
            with pytest.raises(Refused):
                find_target(context, named)


async def test_lists_are_read_and_other_settings_are_none() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic("t")
        context = context_of(gateway)
        targets: list[tuple[Target, str, str]] = [
            (find_target(context, Named("t", TOPIC)), "cleanup.policy", "retention.ms"),
            (find_target(context, Named("1", BROKER)), "log.cleanup.policy", "max.connections"),
        ]
        for target, a_list, no_list in targets:
            assert ["delete"] == current_list(target, a_list)
            for name in (no_list, "nope"):
                with pytest.raises(InvalidConfig, match="a list"):
                    current_list(target, name)


async def test_changes_are_made_where_they_belong() -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t")
        context = context_of(gateway)
        for named, name in ((Named("t"), "flush.ms"), (Named("1", BROKER), "log.retention.ms")):
            target = find_target(context, named)
            await target.alter({name: "7"}, replace=False, validate_only=False)
            assert "7" == target.value(name)
        assert {"flush.ms": "7"} == topic.configs
        assert {"log.retention.ms": "7"} == gateway.services.broker_settings.of("1")
