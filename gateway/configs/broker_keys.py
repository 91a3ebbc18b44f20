"""Broker keys: every configuration name that a broker of Apache Kafka 4.3 has.

Rule: names, types, defaults, limits and whether a name can be altered while the broker runs are
Kafka's, one name a line of `broker_keys.tsv`; the descriptions there are ours, of what a setting
does *here*. Broker-level names of topic settings have the facts of their topic setting.
Must not know: the values in force.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from kledger.gateway.configs.address_limits import parse_overrides
from kledger.topics import CONFIG_KEYS, ConfigType
from kledger.topics.config.config_keys import NO_EFFECT
from kledger.topics.config.config_values import Allowed, ConfigValue, at_least, between, one_of

TABLE: Final = Path(__file__).with_name("broker_keys.tsv")
UNLIMITED: Final = str((1 << 63) - 1)
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"


class UpdateMode(Enum):
    """How a setting can be altered while the broker runs (KIP-226)."""

    READ_ONLY = "read-only"
    """Only by a restart."""
    PER_BROKER = "per-broker"
    """For one broker, not for all of them at once."""
    PER_LISTENER = "per-listener"
    """As PER_BROKER, and only under a listener's prefix."""
    CLUSTER_WIDE = "cluster-wide"
    """For one broker, or as the default of all."""


@dataclass(frozen=True, slots=True)
class BrokerKey:
    """One setting of a broker.

    Attributes:
        default: Kafka's, as text; None where Kafka has none.
        documentation: what the setting does here; None where there is nothing to say.
    """

    name: str
    type: ConfigType
    default: str | None
    mode: UpdateMode
    documentation: str | None = None
    allowed: Allowed | None = None

    @property
    def is_sensitive(self) -> bool:
        """Whether no client is shown its value."""
        return self.type is ConfigType.PASSWORD


def _are_overrides(value: ConfigValue) -> bool:
    try:
        return bool(parse_overrides(str(value))) or not value
    except ValueError:
        return False


OVERRIDES: Final = Allowed("address:count,address:count,…", _are_overrides)
_EFFECTS: Final = {
    "log.cleaner.backoff.ms": "How long the log cleaner waits when nothing is to be compacted.",
    "log.cleaner.dedupe.buffer.size": "Memory for the keys of one compaction; the rest goes to"
    " temporary files.",
    "log.cleaner.io.max.bytes.per.second": "What all compactions together read and write in a"
    " second.",
    "log.cleaner.threads": "How many partitions are compacted at once.",
    "max.connections": "The largest number of connections of Kafka clients.",
    "max.connections.per.ip": "The largest number of connections from one address.",
    "max.connections.per.ip.overrides": "Limits for single addresses.",
    "producer.id.expiration.ms": "How long an idle producer is remembered in a partition.",
    "listeners": "Where Kafka clients connect; only the current value is accepted.",
    "listener.security.protocol.map": "Fixed; only the current value is accepted.",
}
_REASONS: Final = (
    (("ssl.", "sasl."), "listeners get their settings when the server starts."),
    (("principal.",), "no classes of others are loaded."),
    (("log.cleaner.io.",), "a compaction reads and writes 2 MiB at a time, at a low priority."),
    (("remote.",), "the library of the object store has its own limits, see offload.options."),
    (("follower.fetch.",), "there is one node, and nothing moves."),
    (("group.share.", "share."), "there are no share groups."),
    (("group.streams.",), "there are no groups of the protocol of Kafka Streams."),
    (("group.consumer.",), "an assignment is computed as soon as the group changes."),
    (("group.coordinator.",), "groups are stored as rows, without a buffer."),
    (("num.", "background."), "one event loop handles all requests; threads only read and write."),
    (("leader.", "follower.", "replica."), "there is one node, and nothing moves."),
    (("config.", "metric."), "no classes of others are loaded."),
    (("cordoned.",), "there is one folder."),
    (("transaction.",), "a record of a transaction is always checked against it."),
    (("max.connection.creation.",), "only the rate of one address can be limited, by a quota."),
)
"""Why altering changes nothing, by the beginning of the name; the first that fits holds."""
_RANGE = re.compile(r"(-?[0-9.]+?)\.\.(-?[0-9.]+)?")
_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]*\.")


def _allowed(text: str) -> Allowed | None:
    """Read a range (`1..`, `0..9`) or the words that are allowed (`a|b`)."""
    if not text:
        return None
    found = _RANGE.fullmatch(text)
    if found is None:
        return one_of(*text.split("|"))
    low, high = found.groups()
    return at_least(int(low)) if high is None else between(int(low), int(high))


def _documentation(name: str, mode: UpdateMode) -> str | None:
    if name in _EFFECTS:
        return _EFFECTS[name]
    if mode is UpdateMode.READ_ONLY:
        return None
    reason = next((reason for starts, reason in _REASONS if name.startswith(starts)), None)
    return None if reason is None else NO_EFFECT + reason


def _read(table: str) -> Iterator[BrokerKey]:
    shared = {
        key.synonyms[0].name: (key.documentation, key.allowed)
        for key in CONFIG_KEYS.values()
        if key.synonyms
    }
    for line in table.splitlines():
        name, kind, default, mode_name, limits = line.split("\t")
        mode = UpdateMode(mode_name)
        documentation, allowed = shared.get(name, (_documentation(name, mode), _allowed(limits)))
        if name == "max.connections.per.ip.overrides":
            allowed = OVERRIDES
        yield BrokerKey(
            name,
            ConfigType(kind),
            None if default == "null" else default,
            mode,
            documentation,
            allowed,
        )


KAFKA_KEYS: Final[Mapping[str, BrokerKey]] = {
    key.name: key for key in _read(TABLE.read_text("utf-8"))
}
"""What DescribeConfigs of a broker lists, whether it is set or not."""
THROTTLES: Final[Mapping[str, BrokerKey]] = {
    name: BrokerKey(
        name,
        ConfigType.LONG,
        UNLIMITED,
        UpdateMode.CLUSTER_WIDE,
        _documentation(name, UpdateMode.CLUSTER_WIDE),
        at_least(0),
    )
    for name in (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
}
"""For `kafka-reassign-partitions --throttle`; listed only when they are set, as in Kafka."""
KLEDGER_KEYS: Final[Mapping[str, BrokerKey]] = {
    key.synonyms[0].name: BrokerKey(
        key.synonyms[0].name,
        key.type,
        key.default,
        UpdateMode.CLUSTER_WIDE,
        key.documentation,
        key.allowed,
    )
    for key in CONFIG_KEYS.values()
    if key.name.startswith("kledger.")
}
"""Defaults of topic settings that Kafka does not have."""
BROKER_KEYS: Final[Mapping[str, BrokerKey]] = {**KAFKA_KEYS, **THROTTLES, **KLEDGER_KEYS}


def find_key(name: str) -> BrokerKey | None:
    """Return the key of a name, which may have the prefix of a listener; None if there is none."""
    return BROKER_KEYS.get(name) or BROKER_KEYS.get(without_listener_prefix(name))


def without_listener_prefix(name: str) -> str:
    """Return a name without the prefix of a listener (`listener.name.internal.`)."""
    found = _LISTENER_PREFIX.match(name)
    return name if found is None else name[found.end() :]
