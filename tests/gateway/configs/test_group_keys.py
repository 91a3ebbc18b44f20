"""The names of settings of groups, as Apache Kafka 4.3.0 lists them, and what it lets in."""

import pytest

from kledger.gateway.configs.group_keys import GROUP_KEYS
from kledger.topics import InvalidConfig
from kledger.topics.config.config_values import parse

KAFKAS = {
    "consumer.session.timeout.ms": "45000",
    "consumer.heartbeat.interval.ms": "5000",
    "consumer.assignment.interval.ms": "1000",
    "share.session.timeout.ms": "45000",
    "share.heartbeat.interval.ms": "5000",
    "share.assignment.interval.ms": "1000",
    "share.record.lock.duration.ms": "30000",
    "share.delivery.count.limit": "5",
    "share.partition.max.record.locks": "2000",
    "share.auto.offset.reset": "latest",
    "share.isolation.level": "read_uncommitted",
    "share.renew.acknowledge.enable": "true",
    "streams.session.timeout.ms": "45000",
    "streams.heartbeat.interval.ms": "5000",
    "streams.assignment.interval.ms": "1000",
    "streams.initial.rebalance.delay.ms": "3000",
    "streams.num.standby.replicas": "0",
}


def is_let_in(name: str, text: str) -> bool:
    key = GROUP_KEYS[name]
    try:
        parse(name, key.type, text, key.allowed)
    except InvalidConfig:
        return False
    return True


def test_names_and_defaults_are_kafkas() -> None:
    assert {name: key.default for name, key in GROUP_KEYS.items()} == KAFKAS
    assert list(GROUP_KEYS) == sorted(GROUP_KEYS)
    assert all(is_let_in(name, default) for name, default in KAFKAS.items())


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("consumer.session.timeout.ms", ["1"], ["0", "-1", "x", ""]),
        ("consumer.assignment.interval.ms", ["0", "15000"], ["-1", "15001"]),
        ("share.session.timeout.ms", ["45000", "60000"], ["44999", "60001"]),
        ("share.heartbeat.interval.ms", ["5000", "15000"], ["4999", "15001"]),
        ("share.delivery.count.limit", ["2", "10"], ["1", "11"]),
        ("share.record.lock.duration.ms", ["15000", "60000"], ["14999", "60001"]),
        ("share.partition.max.record.locks", ["100", "4000"], ["99", "4001"]),
        ("share.isolation.level", ["read_committed"], ["READ_COMMITTED", ""]),
        ("share.renew.acknowledge.enable", ["TRUE", "false"], ["no"]),
        ("streams.initial.rebalance.delay.ms", ["0", "2147483647"], ["-1", "2147483648"]),
        ("streams.num.standby.replicas", ["0", "2"], ["-1", "3"]),
        (
            "share.auto.offset.reset",
            [
                "earliest",
                "latest",
                "by_duration:PT1H",
                "by_duration:P2DT3H4M5.5S",
                "by_duration:P1D",
            ],
            ["none", "LATEST", "", "by_duration:", "by_duration:x", "by_duration:-PT1H"],
        ),
        ("share.auto.offset.reset", ["by_duration:PT0S"], ["by_duration:P", "by_duration:PT"]),
    ],
)
def test_limits_are_kafkas(name: str, good: list[str], bad: list[str]) -> None:
    assert (good, []) == (
        [text for text in good if is_let_in(name, text)],
        [text for text in bad if is_let_in(name, text)],
    )
