"""The table against the list that Apache Kafka 4.3.0 prints about itself."""

from kledger.topics.config.config_keys import CONFIG_KEYS

FACTS = """
cleanup.policy list delete log.cleanup.policy
compression.gzip.level int -1 compression.gzip.level
compression.lz4.level int 9 compression.lz4.level
compression.type string producer compression.type
compression.zstd.level int 3 compression.zstd.level
delete.retention.ms long 86400000 log.cleaner.delete.retention.ms
file.delete.delay.ms long 60000 log.segment.delete.delay.ms
flush.messages long 9223372036854775807 log.flush.interval.messages
flush.ms long 9223372036854775807 log.flush.interval.ms
follower.replication.throttled.replicas list "" -
index.interval.bytes int 4096 log.index.interval.bytes
leader.replication.throttled.replicas list "" -
local.retention.bytes long -2 log.local.retention.bytes
local.retention.ms long -2 log.local.retention.ms
max.compaction.lag.ms long 9223372036854775807 log.cleaner.max.compaction.lag.ms
max.message.bytes int 1048588 message.max.bytes
message.timestamp.after.max.ms long 3600000 log.message.timestamp.after.max.ms
message.timestamp.before.max.ms long 9223372036854775807 log.message.timestamp.before.max.ms
message.timestamp.type string CreateTime log.message.timestamp.type
min.cleanable.dirty.ratio double 0.5 log.cleaner.min.cleanable.ratio
min.compaction.lag.ms long 0 log.cleaner.min.compaction.lag.ms
min.insync.replicas int 1 min.insync.replicas
preallocate boolean false log.preallocate
remote.log.copy.disable boolean false -
remote.log.delete.on.disable boolean false -
remote.storage.enable boolean false -
retention.bytes long -1 log.retention.bytes
retention.ms long 604800000 log.retention.ms
segment.bytes int 1073741824 log.segment.bytes
segment.index.bytes int 10485760 log.index.size.max.bytes
segment.jitter.ms long 0 log.roll.jitter.ms
segment.ms long 604800000 log.roll.ms
unclean.leader.election.enable boolean false unclean.leader.election.enable
"""

OURS = {
    "compaction.strategy", "kledger.compaction.threshold.bytes", "kledger.data.read.priority",
    "kledger.offload.deletion.lag.ms", "kledger.offload.threshold.bytes",
    "kledger.offload.threshold.seconds", "kledger.retention.waits.for",
}  # fmt: skip


def test_names_types_defaults_and_synonyms_are_those_of_the_release() -> None:
    ours = [
        f"{key.name} {key.type.value} {key.default or chr(34) * 2} "
        + (key.synonyms[0].name if key.synonyms else "-")
        for key in CONFIG_KEYS.values()
        if not key.is_internal and key.name not in OURS
    ]
    assert FACTS.strip().splitlines() == ours


def test_what_kafka_does_not_have_is_named_so() -> None:
    """But for the name that programs of native clients use."""
    named = {name for name in CONFIG_KEYS if name.startswith("kledger.")}
    assert {"compaction.strategy"} == OURS - named


def test_only_the_segment_size_for_tests_is_internal() -> None:
    assert ["internal.segment.bytes"] == [k.name for k in CONFIG_KEYS.values() if k.is_internal]


def test_times_in_other_units_carry_their_factor() -> None:
    assert [1, 60_000, 3_600_000] == [each.factor for each in CONFIG_KEYS["retention.ms"].synonyms]
