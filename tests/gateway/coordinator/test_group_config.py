"""Settings of groups come from the gateway's, within the limits of groups."""

import pytest

from kledger.gateway.config import GatewayConfig
from kledger.gateway.coordinator.group_config import (
    MEMBERS_PER_GROUP_MAX,
    ConsumerTimes,
    GroupConfig,
)


def test_defaults_agree_with_the_gateways() -> None:
    assert GroupConfig.from_gateway(GatewayConfig()) == GroupConfig()


def test_group_size_has_an_upper_bound() -> None:
    small = GroupConfig.from_gateway(GatewayConfig(group_max_size=3))
    large = GroupConfig.from_gateway(GatewayConfig(group_max_size=2**31 - 1))

    assert (small.group_max_size, large.group_max_size) == (3, MEMBERS_PER_GROUP_MAX)


def test_retention_is_counted_in_ms() -> None:
    assert GroupConfig(offsets_retention_minutes=2).offsets_retention_ms == 120_000


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        ("bidirectional", True, True),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
def test_migration_policy_allows_upgrade_and_downgrade(policy: str, up: bool, down: bool) -> None:
    config = GroupConfig(consumer_migration_policy=policy)
    assert (up, down) == (config.may_upgrade, config.may_downgrade)


def test_assignors_are_a_list_in_their_order() -> None:
    gateway = GatewayConfig(group_consumer_assignors="range,uniform", group_consumer_max_size=9)
    config = GroupConfig.from_gateway(gateway)
    assert (("range", "uniform"), 9) == (config.consumer_assignors, config.consumer_max_size)


def test_a_group_has_its_own_times_or_those_of_all() -> None:
    config = GroupConfig(consumer_session_timeout_ms=9, consumer_heartbeat_interval_ms=3)
    config.own_times["own"] = ConsumerTimes(7, 2)
    assert (ConsumerTimes(7, 2), ConsumerTimes(9, 3)) == (
        config.times_of("own"),
        config.times_of("other"),
    )
