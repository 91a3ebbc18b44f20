"""Settings of single groups: which are let in, from when and how long they hold."""

from collections.abc import Mapping

import pytest

from kledger.gateway.api_errors import ApiError
from kledger.gateway.config import GatewayConfig
from kledger.gateway.configs.group_settings import GroupSettings
from kledger.gateway.coordinator.group_config import ConsumerTimes, GroupConfig
from kledger.ledger import LedgerStore
from kledger.ledger.testing import FaultyEngine
from kledger.topics import InvalidConfig
from kledger.topics.errors import TopicStorageFailed
from tests.gateway.coordinator.consumer_words import join_command
from tests.gateway.coordinator.shell_words import settle
from tests.gateway.running import RunningGateway, running_gateway, until

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
OF_ALL = ConsumerTimes(45_000, 5_000)


async def alter(
    settings: GroupSettings, changes: Mapping[str, str | None], name: str = "g"
) -> None:
    await settings.alter(name, changes, replace=False, validate_only=False)


async def answered_interval(gateway: RunningGateway, group_id: str = "g") -> int:
    """Let a member join and return how often it is to speak."""
    await gateway.create_topic("t")
    joining = join_command("a", "t", group_id=group_id)
    return (await gateway.services.groups.consumer_heartbeat(joining)).heartbeat_interval_ms


async def test_settings_hold_at_once_for_their_group_alone() -> None:
    async with running_gateway() as gateway:
        settings, config = gateway.services.group_settings, gateway.services.groups.config
        await alter(settings, {SESSION: " 50000 "})
        assert ConsumerTimes(50_000, 5_000) == config.times_of("g")
        await alter(settings, {HEARTBEAT: "7000"})
        assert ConsumerTimes(50_000, 7_000) == config.times_of("g")
        assert OF_ALL == config.times_of("other")
        assert 7_000 == await answered_interval(gateway)
        assert {SESSION: "50000", HEARTBEAT: "7000"} == settings.of("g")
        await alter(settings, {SESSION: None, HEARTBEAT: None, "nope": None})
        assert (OF_ALL, {}) == (config.times_of("g"), settings.all)


async def test_settings_survive_a_restart() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway:
        await alter(gateway.services.group_settings, {HEARTBEAT: "7000"})
        await alter(gateway.services.group_settings, {"share.delivery.count.limit": "7"}, "h")
    async with running_gateway(engine=engine) as gateway:
        assert {"g", "h"} == set(gateway.services.group_settings.all)
        assert OF_ALL == gateway.services.groups.config.times_of("h")
        assert 7_000 == await answered_interval(gateway)


async def test_members_that_a_restart_brings_back_have_the_time_of_their_group() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway:
        await alter(gateway.services.group_settings, {SESSION: "60000"})
        await answered_interval(gateway)
    async with running_gateway(engine=engine) as gateway:

        def count() -> int:
            group = gateway.services.groups.describe_consumer_group("g")
            assert group is not None
            return len(group.members)

        gateway.clock.advance(59_999)
        await settle()
        assert 1 == count()
        gateway.clock.advance(1)
        await until(lambda: not count())


@pytest.mark.parametrize(
    "changes",
    [
        {SESSION: "44999"},
        {SESSION: "60001"},
        {SESSION: "soon"},
        {SESSION: "0"},
        {HEARTBEAT: "4999"},
        {HEARTBEAT: "15001"},
        {"nope": "1"},
        {SESSION: "50000", "share.delivery.count.limit": "1"},
    ],
)
async def test_what_is_refused_changes_nothing(changes: dict[str, str]) -> None:
    async with running_gateway() as gateway:
        settings = gateway.services.group_settings
        with pytest.raises(InvalidConfig):
            await alter(settings, changes)
        assert ({}, OF_ALL) == (settings.all, gateway.services.groups.config.times_of("g"))


async def test_limits_are_those_of_the_node_and_a_session_has_more_than_one_heartbeat() -> None:
    config = GatewayConfig(
        group_consumer_min_session_timeout_ms=100,
        group_consumer_min_heartbeat_interval_ms=10,
        group_consumer_max_heartbeat_interval_ms=50_000,
    )
    groups = GroupConfig.from_gateway(config)
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        settings = GroupSettings(store, config, groups)
        for changes in ({SESSION: "5000"}, {HEARTBEAT: "45000"}, {SESSION: "99"}):
            with pytest.raises(InvalidConfig, match=r"(expected|Value must be at least)"):
                await alter(settings, changes)
        await alter(settings, {SESSION: "100", HEARTBEAT: "99"})
        assert ConsumerTimes(100, 99) == groups.times_of("g")


async def test_what_is_only_checked_or_cannot_be_stored_does_not_hold() -> None:
    async with running_gateway() as gateway:
        settings = gateway.services.group_settings
        await settings.alter("g", {SESSION: "50000"}, replace=False, validate_only=True)
        gateway.engine.fail_next("commit")
        with pytest.raises(TopicStorageFailed):
            await alter(settings, {SESSION: "50000"})
        assert ({}, OF_ALL) == (settings.all, gateway.services.groups.config.times_of("g"))


async def test_replacing_takes_back_what_is_not_named() -> None:
    async with running_gateway() as gateway:
        settings = gateway.services.group_settings
        await alter(settings, {SESSION: "50000", HEARTBEAT: "7000"})
        await settings.alter("g", {HEARTBEAT: "8000"}, replace=True, validate_only=False)
        assert {HEARTBEAT: "8000"} == settings.of("g")
        assert ConsumerTimes(45_000, 8_000) == gateway.services.groups.config.times_of("g")


async def test_there_are_no_settings_of_all_groups() -> None:
    async with running_gateway() as gateway:
        with pytest.raises(ApiError, match="Default group resources"):
            await alter(gateway.services.group_settings, {SESSION: "50000"}, "")
