"""Group keys: every configuration name that a group of Apache Kafka 4.3 has.

Rule: names, types, defaults, limits and broker-level names are Kafka's; the descriptions are ours,
of what the setting does *here*.
Must not know: the values in force.
"""

import re
from collections.abc import Mapping
from typing import Final

from kledger.topics import ConfigType
from kledger.topics.config.config_keys import NO_EFFECT, ConfigKey, Synonym
from kledger.topics.config.config_values import Allowed, ConfigValue, at_least, between, one_of

CONSUMER_SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
CONSUMER_HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
_NO_DELAY: Final = NO_EFFECT + "the assignor runs as soon as something has changed."
_NO_SHARE: Final = NO_EFFECT + "there are no share groups."
_NO_STREAMS: Final = NO_EFFECT + "there are no groups of the protocol of Kafka Streams."
_DURATION = re.compile(
    r"P(?=[0-9T])([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{0,9})?S)?)?",
    re.IGNORECASE,
)
"""What Java reads as a duration that is not negative."""


def _starts_somewhere(value: ConfigValue) -> bool:
    if value in ("earliest", "latest"):
        return True
    kind, _, duration = str(value).partition(":")
    return kind == "by_duration" and _DURATION.fullmatch(duration) is not None


def _number(
    name: str, default: int, documentation: str, low: int, high: int | None = None
) -> ConfigKey:
    allowed = at_least(low) if high is None else between(low, high)
    synonyms = (Synonym(f"group.{name}"),)
    return ConfigKey(name, ConfigType.INT, str(default), documentation, allowed, synonyms)


def _word(
    name: str, kind: ConfigType, default: str, documentation: str, allowed: Allowed | None = None
) -> ConfigKey:
    return ConfigKey(name, kind, default, documentation, allowed, (Synonym(name),))


_CONSUMER = (
    _number(
        CONSUMER_SESSION_TIMEOUT, 45_000,
        "How long a member of the consumer protocol may be silent before it is removed; within"
        " group.consumer.min.session.timeout.ms and group.consumer.max.session.timeout.ms.",
        1,
    ),
    _number(
        CONSUMER_HEARTBEAT_INTERVAL, 5_000,
        "How often a member of the consumer protocol is to send a heartbeat; within"
        " group.consumer.min.heartbeat.interval.ms and group.consumer.max.heartbeat.interval.ms,"
        " and less than the session timeout.",
        1,
    ),
    _number("consumer.assignment.interval.ms", 1_000, _NO_DELAY, 0, 15_000),
)  # fmt: skip
_SHARE = (
    _number("share.session.timeout.ms", 45_000, _NO_SHARE, 45_000, 60_000),
    _number("share.heartbeat.interval.ms", 5_000, _NO_SHARE, 5_000, 15_000),
    _number("share.assignment.interval.ms", 1_000, _NO_SHARE, 0, 15_000),
    _number("share.delivery.count.limit", 5, _NO_SHARE, 2, 10),
    _number("share.record.lock.duration.ms", 30_000, _NO_SHARE, 15_000, 60_000),
    _number("share.partition.max.record.locks", 2_000, _NO_SHARE, 100, 4_000),
    _word(
        "share.auto.offset.reset", ConfigType.STRING, "latest", _NO_SHARE,
        Allowed("earliest, latest or by_duration:PnDTnHnMn.nS", _starts_somewhere),
    ),
    _word(
        "share.isolation.level", ConfigType.STRING, "read_uncommitted", _NO_SHARE,
        one_of("read_committed", "read_uncommitted"),
    ),
    _word("share.renew.acknowledge.enable", ConfigType.BOOLEAN, "true", _NO_SHARE),
)  # fmt: skip
_STREAMS = (
    _number("streams.session.timeout.ms", 45_000, _NO_STREAMS, 45_000, 60_000),
    _number("streams.heartbeat.interval.ms", 5_000, _NO_STREAMS, 5_000, 15_000),
    _number("streams.assignment.interval.ms", 1_000, _NO_STREAMS, 0, 15_000),
    _number("streams.initial.rebalance.delay.ms", 3_000, _NO_STREAMS, 0),
    _number("streams.num.standby.replicas", 0, _NO_STREAMS, 0, 2),
)

GROUP_KEYS: Final[Mapping[str, ConfigKey]] = {
    key.name: key for key in sorted(_CONSUMER + _SHARE + _STREAMS, key=lambda each: each.name)
}
