"""Every configuration name that a topic of Apache Kafka 4.3 has, and kledger's own.

Rule: names, types, defaults, allowed values and broker-level synonyms are Kafka's; the sentences
say what the setting does in kledger. A setting that Kafka does not have is called `kledger.…`, but
for `compaction.strategy`, whose name programs of native clients use. A name that is not in the
table is refused.
Must not know: the values of any topic.
"""

from dataclasses import dataclass

from kledger.topics.config.config_values import (
    INT_MAX,
    LONG_MAX,
    REPLICAS,
    Allowed,
    ConfigType,
    at_least,
    between,
    gzip_level,
    one_of,
    some_of,
)
from kledger.topics.config.strategy_name import STRATEGY_NAME

BOOLEAN, STRING, INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
LONG, DOUBLE, LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WAITS_FOR = "kledger.retention.waits.for"
COMPACTION_THRESHOLD = "kledger.compaction.threshold.bytes"
COMPACTION_STRATEGY = "compaction.strategy"
DATA_READ_PRIORITY = "kledger.data.read.priority"
OFFLOAD_THRESHOLD_BYTES = "kledger.offload.threshold.bytes"
OFFLOAD_THRESHOLD_SECONDS = "kledger.offload.threshold.seconds"
OFFLOAD_DELETION_LAG_MS = "kledger.offload.deletion.lag.ms"
REMOTE_STORAGE_ENABLE = "remote.storage.enable"
REMOTE_LOG_COPY_DISABLE = "remote.log.copy.disable"
LOCAL_RETENTION_AS_TOTAL = -2
"""Of `local.retention.ms` and `local.retention.bytes`: as `retention.ms`, `retention.bytes`."""
TIERED_FIRST, BOOKKEEPER_FIRST = "tiered-first", "bookkeeper-first"
TIERED_STORAGE_FIRST = "tiered-storage-first"
"""Pulsar's other spelling of `TIERED_FIRST`."""
SUBSCRIPTIONS, GROUPS = "subscriptions", "groups"
NO_EFFECT = "Accepted and reported; it changes nothing here, because "
"""Begins the sentence about a setting that is stored and changes nothing."""


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker-level name for the default of a topic setting, and the unit it counts in."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting of a topic."""

    name: str
    type: ConfigType
    default: str
    documentation: str
    allowed: Allowed | None = None
    synonyms: tuple[Synonym, ...] = ()
    is_internal: bool = False


def _key(
    name: str,
    kind: ConfigType,
    default: str | int,
    documentation: str,
    *,
    allowed: Allowed | None = None,
    broker: str | tuple[Synonym, ...] = (),
    is_internal: bool = False,
) -> ConfigKey:
    synonyms = (Synonym(broker),) if isinstance(broker, str) else broker
    return ConfigKey(name, kind, str(default), documentation, allowed, synonyms, is_internal)


def _times(*names: str) -> tuple[Synonym, ...]:
    factors = {"hours": HOUR_MS, "minutes": MINUTE_MS, "ms": 1}
    return tuple(Synonym(name, factors[name.rpartition(".")[2]]) for name in names)


_RETENTION = (
    _key(
        "cleanup.policy", LIST, "delete",
        "delete: old ledgers go by age and size; compact: records need keys, and the newest of"
        " each key stays; both: either; empty: everything stays.",
        allowed=some_of("compact", "delete"), broker="log.cleanup.policy",
    ),
    _key(
        "retention.ms", LONG, 7 * DAY_MS,
        "How long records stay at least, by their largest timestamp in a ledger; -1 is for ever.",
        allowed=at_least(-1),
        broker=_times("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ),
    _key(
        "retention.bytes", LONG, -1,
        "How many bytes a partition keeps at least before its oldest ledgers go; -1 is no limit.",
        broker="log.retention.bytes",
    ),
    _key(
        "segment.bytes", INT, 1 << 30,
        "A partition begins a new ledger when the current one holds this many bytes.",
        allowed=at_least(1 << 20), broker="log.segment.bytes",
    ),
    _key(
        "segment.ms", LONG, 7 * DAY_MS,
        "A partition begins a new ledger when the current one is this old, so that old records"
        " can go even where few are written.",
        allowed=at_least(1), broker=_times("log.roll.ms", "log.roll.hours"),
    ),
    _key(
        "segment.jitter.ms", LONG, 0,
        NO_EFFECT + "ledgers of different partitions roll cheaply at one time.",
        allowed=at_least(0), broker=_times("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ),
    _key(
        "file.delete.delay.ms", LONG, MINUTE_MS,
        NO_EFFECT + "space in the entry log is given back when a whole log file is dead.",
        allowed=at_least(0), broker="log.segment.delete.delay.ms",
    ),
    _key(
        WAITS_FOR, LIST, SUBSCRIPTIONS,
        "What retention waits for before it removes records: subscriptions, until each durable one"
        " has acknowledged them; groups, until each that has committed an offset has committed a"
        " higher one; empty: nothing, as in Apache Kafka. Deleted records never wait.",
        allowed=some_of(SUBSCRIPTIONS, GROUPS), broker=WAITS_FOR,
    ),
    _key(
        "local.retention.ms", LONG, -2,
        "With remote.storage.enable: how long the primary copies of offloaded ledgers stay, by"
        " their largest timestamp; -1 is for ever, -2 as long as retention.ms.",
        allowed=at_least(-2), broker="log.local.retention.ms",
    ),
    _key(
        "local.retention.bytes", LONG, -2,
        "With remote.storage.enable: how many bytes of primary copies a partition keeps at least;"
        " -1 is no limit, -2 as many as retention.bytes.",
        allowed=at_least(-2), broker="log.local.retention.bytes",
    ),
)  # fmt: skip

_MESSAGES = (
    _key(
        "max.message.bytes", INT, 1_048_588,
        "The largest record batch that is taken, compressed and with its header.",
        allowed=at_least(0), broker="message.max.bytes",
    ),
    _key(
        "message.timestamp.type", STRING, "CreateTime",
        "Whether a record keeps the time its producer gave it, or gets the time of the append.",
        allowed=one_of("CreateTime", "LogAppendTime"), broker="log.message.timestamp.type",
    ),
    _key(
        "message.timestamp.before.max.ms", LONG, LONG_MAX,
        "How far a producer's timestamp may lie in the past; ignored under LogAppendTime.",
        allowed=at_least(0), broker="log.message.timestamp.before.max.ms",
    ),
    _key(
        "message.timestamp.after.max.ms", LONG, HOUR_MS,
        "How far a producer's timestamp may lie in the future; ignored under LogAppendTime.",
        allowed=at_least(0), broker="log.message.timestamp.after.max.ms",
    ),
    _key(
        "compression.type", STRING, "producer",
        NO_EFFECT + "batches stay as their producer compressed them.",
        allowed=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker="compression.type",
    ),
    _key(
        "compression.gzip.level", INT, -1, NO_EFFECT + "nothing is compressed again.",
        allowed=Allowed("1 to 9, or -1", gzip_level), broker="compression.gzip.level",
    ),
    _key(
        "compression.lz4.level", INT, 9, NO_EFFECT + "nothing is compressed again.",
        allowed=between(1, 17), broker="compression.lz4.level",
    ),
    _key(
        "compression.zstd.level", INT, 3, NO_EFFECT + "nothing is compressed again.",
        allowed=between(-131_072, 22), broker="compression.zstd.level",
    ),
)  # fmt: skip

_COMPACTION = (
    _key(
        "delete.retention.ms", LONG, DAY_MS,
        "How long a tombstone stays after the compaction that first finds it, so that a consumer"
        " that reads from the beginning sees the deletion.",
        allowed=at_least(0), broker="log.cleaner.delete.retention.ms",
    ),
    _key(
        "min.compaction.lag.ms", LONG, 0,
        "How long records are not compacted, by the largest timestamp in their ledger.",
        allowed=at_least(0), broker="log.cleaner.min.compaction.lag.ms",
    ),
    _key(
        "max.compaction.lag.ms", LONG, LONG_MAX,
        "After this time a partition is compacted even if few of its records are new; with"
        " cleanup.policy compact, it begins a new ledger when the current one is this old, if that"
        " is before segment.ms.",
        allowed=at_least(1), broker="log.cleaner.max.compaction.lag.ms",
    ),
    _key(
        COMPACTION_THRESHOLD, LONG, 0,
        "A partition is compacted, whatever cleanup.policy says, when this many bytes have been"
        " appended since the last compaction, and retention waits for that; 0: never."
        " Pulsar's compactionThreshold.",
        allowed=at_least(0), broker=COMPACTION_THRESHOLD,
    ),
    _key(
        COMPACTION_STRATEGY, STRING, "",
        "Which record of a key every compaction keeps: module:attribute names an object with"
        " should_keep_left and on_skip, of a module that the server's compaction.strategy.modules"
        " lists; empty: the newest record.",
        allowed=STRATEGY_NAME,
    ),
    _key(
        "min.cleanable.dirty.ratio", DOUBLE, "0.5",
        "A partition is compacted when more than this share of its bytes is new since the last"
        " compaction.",
        allowed=between(0, 1), broker="log.cleaner.min.cleanable.ratio",
    ),
)  # fmt: skip

_OFFLOAD = (
    _key(
        DATA_READ_PRIORITY, STRING, TIERED_FIRST,
        "Which copy of an offloaded ledger is read while both exist: tiered-first (or"
        " tiered-storage-first), the one in the tier, and if that fails the primary;"
        " bookkeeper-first, the primary. Pulsar's managedLedgerDataReadPriority.",
        allowed=one_of(TIERED_FIRST, BOOKKEEPER_FIRST, TIERED_STORAGE_FIRST),
        broker=DATA_READ_PRIORITY,
    ),
    _key(
        OFFLOAD_THRESHOLD_BYTES, LONG, -1,
        "The oldest closed ledgers of a partition are offloaded until at most this many bytes are"
        " not; 0: all closed ledgers; -1: size does not matter. Pulsar's"
        " managedLedgerOffloadThresholdInBytes.",
        allowed=at_least(-1), broker=OFFLOAD_THRESHOLD_BYTES,
    ),
    _key(
        OFFLOAD_THRESHOLD_SECONDS, LONG, -1,
        "Closed ledgers are offloaded when they were closed this long ago; 0: at once; -1: age"
        " does not matter. Pulsar's managedLedgerOffloadThresholdInSeconds.",
        allowed=at_least(-1), broker=OFFLOAD_THRESHOLD_SECONDS,
    ),
    _key(
        OFFLOAD_DELETION_LAG_MS, LONG, -1,
        "The primary copy of a ledger is deleted when it was offloaded longer ago than this; -1:"
        " never. Pulsar's managedLedgerOffloadDeletionLagMs.",
        allowed=at_least(-1), broker=OFFLOAD_DELETION_LAG_MS,
    ),
)  # fmt: skip

_STORAGE = (
    _key(
        "flush.messages", LONG, LONG_MAX,
        NO_EFFECT + "the durability of the store decides when appends are synced.",
        allowed=at_least(1), broker="log.flush.interval.messages",
    ),
    _key(
        "flush.ms", LONG, LONG_MAX,
        NO_EFFECT + "the durability of the store decides when appends are synced.",
        allowed=at_least(0),
        broker=_times("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ),
    _key(
        "index.interval.bytes", INT, 4096,
        NO_EFFECT + "the offset index chooses its own distance.",
        allowed=at_least(0), broker="log.index.interval.bytes",
    ),
    _key(
        "segment.index.bytes", INT, 10 << 20,
        NO_EFFECT + "the offset index is kept in rows, not in files of a fixed size.",
        allowed=at_least(4), broker="log.index.size.max.bytes",
    ),
    _key(
        "preallocate", BOOLEAN, "false", NO_EFFECT + "all partitions share one entry log.",
        broker="log.preallocate",
    ),
    _key(
        "min.insync.replicas", INT, 1, NO_EFFECT + "there is one node.",
        allowed=at_least(1), broker="min.insync.replicas",
    ),
    _key(
        "unclean.leader.election.enable", BOOLEAN, "false", NO_EFFECT + "there is one node.",
        broker="unclean.leader.election.enable",
    ),
    _key(
        "leader.replication.throttled.replicas", LIST, "", NO_EFFECT + "there is one node.",
        allowed=REPLICAS,
    ),
    _key(
        "follower.replication.throttled.replicas", LIST, "", NO_EFFECT + "there is one node.",
        allowed=REPLICAS,
    ),
    _key(
        REMOTE_STORAGE_ENABLE, BOOLEAN, "false",
        "Closed ledgers are offloaded at once, as with a threshold of 0 bytes, and"
        " local.retention.ms and local.retention.bytes apply. The server needs offload.url.",
    ),
    _key(
        REMOTE_LOG_COPY_DISABLE, BOOLEAN, "false",
        "With remote.storage.enable: nothing more is offloaded because of it; what was offloaded"
        " can be read.",
    ),
    _key(
        "remote.log.delete.on.disable", BOOLEAN, "false",
        NO_EFFECT + "after remote.storage.enable was turned off, copies in the tier stay until"
        " retention removes their ledgers.",
    ),
    _key(
        "internal.segment.bytes", INT, 0,
        "Like segment.bytes, without its lower limit; for tests.",
        allowed=between(0, INT_MAX), is_internal=True,
    ),
)  # fmt: skip

CONFIG_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in sorted(
        _RETENTION + _MESSAGES + _COMPACTION + _OFFLOAD + _STORAGE, key=lambda each: each.name
    )
}
