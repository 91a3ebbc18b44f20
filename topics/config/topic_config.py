"""The configuration of one topic: values that were set, values in force and their sources.

Rule: texts are checked when they are set, against the table of names; afterwards only typed,
effective values are used. Of each setting the value of the topic precedes that of its namespace,
that precedes the broker's, and that the default.
Must not know: how configurations are stored or sent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from kledger.batches.validation import RecordRules
from kledger.ledger import ReadPriority
from kledger.topics.config.config_keys import (
    BOOKKEEPER_FIRST,
    COMPACTION_STRATEGY,
    COMPACTION_THRESHOLD,
    CONFIG_KEYS,
    DATA_READ_PRIORITY,
    GROUPS,
    LOCAL_RETENTION_AS_TOTAL,
    OFFLOAD_DELETION_LAG_MS,
    OFFLOAD_THRESHOLD_BYTES,
    OFFLOAD_THRESHOLD_SECONDS,
    REMOTE_LOG_COPY_DISABLE,
    REMOTE_STORAGE_ENABLE,
    SUBSCRIPTIONS,
    WAITS_FOR,
    ConfigKey,
)
from kledger.topics.config.config_values import ConfigType, ConfigValue, normal_text, parse
from kledger.topics.config.strategy_name import check_modules, is_strategy_allowed, refusal
from kledger.topics.errors import InvalidConfig, StrategyNotAllowed

KEPT_MAX = 256
"""Sets of settings whose typed values are cached; topics with equal settings share them."""
NO_CONFIGS: Mapping[str, str] = {}
TIMESTAMP_MIN = -(1 << 63)
TIMESTAMP_MAX = (1 << 63) - 1


class ConfigSource(Enum):
    """Where a value in force was set."""

    TOPIC = "topic"
    NAMESPACE = "namespace"
    BROKER = "broker"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A name that sets, or could set, a value; the first one in a list is in force."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of a topic, as clients and tools see it."""

    name: str
    value: str
    type: ConfigType
    source: ConfigSource
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """Settings of topics that do not have their own."""

    num_partitions: int = 1
    """Partitions of a topic that is created without a number."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Settings by broker-level name (`log.retention.hours`, `message.max.bytes`, …)."""
    batch_validation: str = "header"
    """`header`: the head of every batch is checked, its records only on compacted topics; `full`:
    all records are walked, in every topic."""
    producer_id_expiration_ms: int = 86_400_000
    """How long an idle producer is remembered in a partition."""
    producers_max: int = 10_000
    """How many producers a partition remembers; the longest idle go first."""
    compaction_strategy_modules: tuple[str, ...] = ()
    """The modules whose strategies topics may name in `compaction.strategy`, separated by commas; a
    package includes the modules in it. Compactions import them, in processes of their own."""
    namespaces_auto_create: bool = False
    """Whether a new topic creates its namespace, if that does not exist."""

    def __post_init__(self) -> None:
        if self.batch_validation not in ("header", "full"):
            raise InvalidConfig(
                f"batch.validation: expected header or full, got {self.batch_validation!r}"
            )
        if self.num_partitions < 1:
            raise InvalidConfig(f"num.partitions: expected at least 1, got {self.num_partitions}")
        check_modules(self.compaction_strategy_modules)
        for key in CONFIG_KEYS.values():
            _broker_value(key, self.configs)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The typed values in force; read on the hot path.

    Attributes:
        is_log_append_time: records get the time of the append.
        is_compacted, is_deleted_by_age: the parts of cleanup.policy.
        compaction_threshold_bytes: 0: compaction does not depend on what was appended.
        compaction_strategy: `module:attribute`; empty: the newest record of a key stays.
        strategy_modules: the modules of strategies that the server allows.
        is_walked: records of every batch are checked one by one.
        waits_for_subscriptions, waits_for_groups: retention keeps what these have not consumed.
        producer_id_expiration_ms: how long an idle producer is remembered.
        data_read_priority: which copy of an offloaded ledger is read.
        offload_threshold_bytes, offload_threshold_seconds: -1: it does not matter.
        offload_deletion_lag_ms: -1: primaries are not deleted.
        is_remote_storage_enabled: `remote.storage.enable`.
        is_remote_copy_disabled: with it, nothing more is offloaded at once.
        local_retention_ms, local_retention_bytes: for primaries of offloaded ledgers; -1: no limit.
    """

    size_max: int
    is_log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    is_compacted: bool
    is_deleted_by_age: bool
    is_walked: bool
    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    segment_ms: int
    waits_for_subscriptions: bool
    waits_for_groups: bool
    producer_id_expiration_ms: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    compaction_threshold_bytes: int
    compaction_strategy: str
    strategy_modules: tuple[str, ...]
    data_read_priority: ReadPriority
    offload_threshold_bytes: int
    offload_threshold_seconds: int
    offload_deletion_lag_ms: int
    is_remote_storage_enabled: bool
    is_remote_copy_disabled: bool
    local_retention_ms: int
    local_retention_bytes: int

    def check_strategy(self) -> None:
        """Check that the server allows the strategy. Raises StrategyNotAllowed."""
        if not is_strategy_allowed(self.compaction_strategy, self.strategy_modules):
            raise StrategyNotAllowed(refusal(self.compaction_strategy, self.strategy_modules))

    def record_rules(self, now_ms: int) -> RecordRules:
        """The rules for the records of a batch that is appended at this time."""
        if self.is_log_append_time:
            return RecordRules(self.is_compacted)
        return RecordRules(
            self.is_compacted,
            max(now_ms - self.timestamp_before_max_ms, TIMESTAMP_MIN),
            min(now_ms + self.timestamp_after_max_ms, TIMESTAMP_MAX),
        )

    @property
    def is_anything_deleted(self) -> bool:
        """Whether records go by age or size at all."""
        return self.is_deleted_by_age and (self.retention_ms >= 0 or self.retention_bytes >= 0)


def check_names(names: Iterable[str]) -> None:
    """Check that every name is one that a topic of Kafka has. Raises InvalidConfig."""
    for name in names:
        if name not in CONFIG_KEYS:
            raise InvalidConfig(f"Unknown topic config name: {name}")


def check_configs(configs: Mapping[str, str]) -> None:
    """Check the settings of a topic as they are to be stored.

    Raises:
        InvalidConfig: a name is unknown, a value is not allowed, or two values contradict.
    """
    check_names(configs)
    for name, text in configs.items():
        key = CONFIG_KEYS[name]
        parse(name, key.type, text, key.allowed)


def check_strategy(configs: Mapping[str, str | None], defaults: TopicDefaults) -> None:
    """Check the strategy among settings that are to be set.

    One that was set before, and is not allowed any more, does not prevent other changes.

    Raises:
        InvalidConfig: the server does not allow it.
    """
    name = (configs.get(COMPACTION_STRATEGY) or "").strip()
    modules = defaults.compaction_strategy_modules
    if not is_strategy_allowed(name, modules):
        raise InvalidConfig(refusal(name, modules))


def check_remote_storage(config: TopicConfig, *, has_tier: bool) -> None:
    """Check the values in force of a topic whose settings are to be changed, as Kafka does.

    Args:
        config: as it would be.
        has_tier: whether the server has a tier.

    Raises:
        InvalidConfig: tiered storage is enabled for it, and cannot be.
    """
    if not config.is_remote_storage_enabled:
        return
    if not has_tier:
        raise InvalidConfig(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured"
            " with remote log storage: remote.storage.enable=true needs the server's offload.url."
        )
    if config.is_compacted:
        raise InvalidConfig("Remote log storage is unsupported for the compacted topics")
    for name, local, total in (
        ("retention.ms", config.local_retention_ms, config.retention_ms),
        ("retention.bytes", config.local_retention_bytes, config.retention_bytes),
    ):
        if total < 0 or 0 <= local <= total:
            continue
        expected = (
            f"Value must not be -1 as {name} value is set as {total}."
            if local < 0
            else f"Value must not be more than {name} property value: {total}"
        )
        raise InvalidConfig(f"Invalid value {local} for configuration local.{name}: {expected}")


def effective_config(
    configs: Mapping[str, str],
    defaults: TopicDefaults,
    namespace_configs: Mapping[str, str] = NO_CONFIGS,
) -> TopicConfig:
    """Compute the values in force for a topic with these settings.

    Cached: most topics of a server have the same settings, and there may be thousands.

    Args:
        configs: of the topic itself.
        defaults: of the server.
        namespace_configs: of the topic's namespace, by the names of topic settings.

    Raises:
        InvalidConfig: two values contradict each other.
    """
    return _effective_config(
        frozenset({**namespace_configs, **configs}.items()),
        frozenset(defaults.configs.items()),
        defaults.batch_validation,
        defaults.producer_id_expiration_ms,
        defaults.compaction_strategy_modules,
    )


@lru_cache(maxsize=KEPT_MAX)
def _effective_config(
    topic: frozenset[tuple[str, str]],
    broker: frozenset[tuple[str, str]],
    batch_validation: str,
    producer_id_expiration_ms: int,
    strategy_modules: tuple[str, ...],
) -> TopicConfig:
    configs, broker_configs = dict(topic), dict(broker)

    def number(name: str) -> int:
        value = _value(name, configs, broker_configs)
        assert isinstance(value, int), f"{name} is {value!r}"
        return value

    def local(name: str) -> int:
        value = number(f"local.{name}")
        return number(name) if value == LOCAL_RETENTION_AS_TOTAL else value

    if number("min.compaction.lag.ms") > number("max.compaction.lag.ms"):
        raise InvalidConfig(
            f"min.compaction.lag.ms: expected at most {number('max.compaction.lag.ms')}, which is"
            f" max.compaction.lag.ms, got {number('min.compaction.lag.ms')}"
        )
    policy = _value("cleanup.policy", configs, broker_configs)
    assert isinstance(policy, tuple), f"cleanup.policy is {policy!r}"
    is_compacted = "compact" in policy
    segment_ms = number("segment.ms")
    waited_for = _value(WAITS_FOR, configs, broker_configs)
    assert isinstance(waited_for, tuple), f"{WAITS_FOR} is {waited_for!r}"
    return TopicConfig(
        size_max=number("max.message.bytes"),
        is_log_append_time=_value("message.timestamp.type", configs, broker_configs)
        == "LogAppendTime",
        timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        is_compacted=is_compacted,
        is_deleted_by_age="delete" in policy,
        is_walked=is_compacted or batch_validation == "full",
        retention_ms=number("retention.ms"),
        retention_bytes=number("retention.bytes"),
        segment_bytes=number("internal.segment.bytes") or number("segment.bytes"),
        segment_ms=min(segment_ms, number("max.compaction.lag.ms")) if is_compacted else segment_ms,
        waits_for_subscriptions=SUBSCRIPTIONS in waited_for,
        waits_for_groups=GROUPS in waited_for,
        producer_id_expiration_ms=producer_id_expiration_ms,
        delete_retention_ms=number("delete.retention.ms"),
        compaction_threshold_bytes=number(COMPACTION_THRESHOLD),
        compaction_strategy=str(_value(COMPACTION_STRATEGY, configs, broker_configs)),
        strategy_modules=strategy_modules,
        data_read_priority=_read_priority(_value(DATA_READ_PRIORITY, configs, broker_configs)),
        offload_threshold_bytes=number(OFFLOAD_THRESHOLD_BYTES),
        offload_threshold_seconds=number(OFFLOAD_THRESHOLD_SECONDS),
        offload_deletion_lag_ms=number(OFFLOAD_DELETION_LAG_MS),
        is_remote_storage_enabled=_value(REMOTE_STORAGE_ENABLE, configs, broker_configs) is True,
        is_remote_copy_disabled=_value(REMOTE_LOG_COPY_DISABLE, configs, broker_configs) is True,
        local_retention_ms=local("retention.ms"),
        local_retention_bytes=local("retention.bytes"),
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        min_cleanable_dirty_ratio=float(
            str(_value("min.cleanable.dirty.ratio", configs, broker_configs))
        ),
    )


def _read_priority(value: ConfigValue) -> ReadPriority:
    return "bookkeeper-first" if value == BOOKKEEPER_FIRST else "tiered-first"


def describe(
    configs: Mapping[str, str],
    defaults: TopicDefaults,
    namespace_configs: Mapping[str, str] = NO_CONFIGS,
) -> list[ConfigEntry]:
    """List every setting of a topic, sorted by name, with where its value comes from."""
    return list(
        _entries(
            frozenset(configs.items()),
            frozenset(namespace_configs.items()),
            frozenset(defaults.configs.items()),
        )
    )


@lru_cache(maxsize=KEPT_MAX)
def _entries(
    topic: frozenset[tuple[str, str]],
    namespace: frozenset[tuple[str, str]],
    broker: frozenset[tuple[str, str]],
) -> tuple[ConfigEntry, ...]:
    levels = ((ConfigSource.TOPIC, dict(topic)), (ConfigSource.NAMESPACE, dict(namespace)))
    keys = (key for key in CONFIG_KEYS.values() if not key.is_internal)
    return tuple(_entry(key, levels, dict(broker)) for key in keys)


def _entry(
    key: ConfigKey,
    levels: Iterable[tuple[ConfigSource, Mapping[str, str]]],
    broker: Mapping[str, str],
) -> ConfigEntry:
    """Show one setting; a default that has several broker-level names, or none, is no synonym."""
    synonyms = [
        ConfigSynonym(key.name, normal_text(_value(key.name, configs, broker)), source)
        for source, configs in levels
        if key.name in configs
    ]
    for synonym in key.synonyms:
        if synonym.name in broker:
            text = broker[synonym.name].strip()
            synonyms.append(ConfigSynonym(synonym.name, text, ConfigSource.BROKER))
    if len(key.synonyms) == 1:
        synonyms.append(ConfigSynonym(key.synonyms[0].name, key.default, ConfigSource.DEFAULT))
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    match source:
        case ConfigSource.TOPIC | ConfigSource.NAMESPACE:
            value = synonyms[0].value
        case ConfigSource.BROKER:
            value = _broker_value(key, broker) or key.default
        case ConfigSource.DEFAULT:
            value = key.default
    return ConfigEntry(key.name, value, key.type, source, key.documentation, tuple(synonyms))


def _value(name: str, configs: Mapping[str, str], broker: Mapping[str, str]) -> ConfigValue:
    key = CONFIG_KEYS[name]
    text = configs.get(name)
    if text is None:
        text = _broker_value(key, broker)
    if text is None:
        text = key.default
    return parse(name, key.type, text, key.allowed)


def _broker_value(key: ConfigKey, configs: Mapping[str, str]) -> str | None:
    """The first synonym that is set, checked and in the unit of the topic setting."""
    for synonym in key.synonyms:
        text = configs.get(synonym.name)
        if text is None:
            continue
        if synonym.factor != 1:
            number = parse(synonym.name, ConfigType.INT, text, None)
            assert isinstance(number, int), "parsed as INT"
            # A negative number of hours or minutes means no limit and is not multiplied.
            text = str(number * synonym.factor if number >= 0 else -1)
        parse(synonym.name, key.type, text, key.allowed)
        return text
    return None
