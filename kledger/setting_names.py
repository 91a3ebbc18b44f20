"""Names of settings of Apache Kafka and Apache Pulsar, and our settings for them.

Rule: where one of the two has the same setting, its name works wherever ours does, in its own unit:
without a section, and in the section of our setting. A field of the `kafka` section has Kafka's
name with underscores for dots; the table below lists the others. All names of Kafka also work in
the sections `kafka` and `topics`, as its users do not know which of the two has the setting here.
Must not know: values, or their sources.
"""

from collections.abc import Callable, Mapping

from kledger.setting_values import SettingError, convert, joined_address, split_address

Assignments = dict[str, object]
"""Values by our own names, `section.field`."""

MINUTE_MS = 60_000
MIB = 1024 * 1024

TABLES: Mapping[str, str] = {
    "offload.options.": "offload.options",
    "listener.name.": "kafka.listener_settings",
    "kafka.listener.name.": "kafka.listener_settings",
    "kafka.listener_settings.": "kafka.listener_settings",
}
"""Our tables, by what the name of one of their entries begins with."""

Rename = tuple[str, int]
"""Our name, and how many of our units one unit of theirs is."""

RENAMED: Mapping[str, Rename] = {
    # Kafka.
    "broker.id": ("kafka.node_id", 1),
    "cluster.advertised.peers": ("cluster.advertised_peers", 1),
    "cluster.sql.asynchronous": ("cluster.sql_asynchronous", 1),
    "compaction.memory.bytes": ("kafka.log_cleaner_dedupe_buffer_size", 1),
    "log.dir": ("server.data", 1),
    "log.dirs": ("server.data", 1),
    "offload.parallel": ("storage.offload_parallel", 1),
    "offload.read.timeout.ms": ("storage.offload_read_timeout_ms", 1),
    "offload.read_bytes_max": ("storage.offload_read_bytes_max", 1),
    "remote.log.manager.task.interval.ms": ("server.log_retention_check_interval_ms", 1),
    # Pulsar, and the storage below it.
    "clusterName": ("kafka.cluster_id", 1),
    "brokerMaxConnections": ("native.max_connections", 1),
    "compactionThreshold": ("topics.kledger_compaction_threshold_bytes", 1),
    "compactionRateByBytes": ("storage.log_rewrite_bytes_per_second", 1),
    "keepAliveIntervalSeconds": ("native.keepalive_ms", 1_000),
    "managedLedgerCacheSizeMB": ("storage.cache_bytes", MIB),
    "managedLedgerDataReadPriority": ("topics.kledger_data_read_priority", 1),
    "managedLedgerOffloadAutoTriggerSizeThresholdBytes": (
        "topics.kledger_offload_threshold_bytes",
        1,
    ),
    "managedLedgerOffloadDeletionLagMs": ("topics.kledger_offload_deletion_lag_ms", 1),
    "managedLedgerOffloadThresholdInBytes": ("topics.kledger_offload_threshold_bytes", 1),
    "managedLedgerOffloadThresholdInSeconds": ("topics.kledger_offload_threshold_seconds", 1),
    "managedLedgerMaxSizePerLedgerMbytes": ("topics.log_segment_bytes", MIB),
    "managedLedgerMaxLedgerRolloverTimeMinutes": ("topics.log_roll_ms", MINUTE_MS),
    "defaultRetentionTimeInMinutes": ("topics.log_retention_minutes", 1),
    "defaultRetentionSizeInMB": ("topics.log_retention_bytes", MIB),
    "defaultNumPartitions": ("kafka.num_partitions", 1),
    "maxMessageSize": ("kafka.message_max_bytes", 1),
    "allowAutoTopicCreation": ("kafka.auto_create_topics_enable", 1),
}


def plaintext_address(name: str, value: object) -> tuple[str, int] | None:
    """Read one `PLAINTEXT://host:port`, the form of Kafka's listeners; the scheme may be missing.

    Returns:
        The address; None for several listeners, or one with another name.

    Raises:
        SettingError: there is no address.
    """
    text = convert(name, str, value)
    scheme, mark, address = text.rpartition("://")
    if "," in text or (mark and scheme != "PLAINTEXT"):
        return None
    host, port = split_address(name, address if address[:1] != ":" else f"0.0.0.0{address}")
    return host, port


def _listeners(name: str, value: object) -> Assignments:
    plain = plaintext_address(name, value)
    if plain is None:
        return {"kafka.listener_addresses": value}
    return {"server.kafka": joined_address(*plain)}


def _advertised_listeners(name: str, value: object) -> Assignments:
    plain = plaintext_address(name, value)
    if plain is None:
        return {"kafka.advertised_addresses": value}
    host, port = plain
    return {"kafka.advertised_host": host, "kafka.advertised_port": port}


SPECIAL: Mapping[str, Callable[[str, object], Assignments]] = {
    "listeners": _listeners,
    "advertised.listeners": _advertised_listeners,
}


def translate(name: str, value: object, own_names: Mapping[str, object]) -> Assignments:
    """Translate one assignment into our own names.

    Args:
        name: ours (`kafka.num_partitions`, or `num_partitions` where no other section has it) or
            theirs (`num.partitions`), also behind a section (`kafka.num.partitions`).
        value: text or a TOML value.
        own_names: every name of ours.

    Raises:
        SettingError: there is no setting of that name, or its unit cannot be converted.
    """
    if name in own_names:
        return {name: value}
    for prefix, table in TABLES.items():
        if name.startswith(prefix):
            return {table: {name.removeprefix(prefix): value}}
    meaning = _foreign_name(name, value, own_names)
    section, dot, rest = name.partition(".")
    if meaning is None and dot and (inside := _foreign_name(rest, value, own_names)) is not None:
        is_home = all(own.startswith(f"{section}.") for own in inside)
        if is_home or (section in {"kafka", "topics"} and _is_kafkas(rest)):
            meaning = inside
    if meaning is None:
        meaning = _without_section(name, value, own_names)
    if meaning is None:
        raise SettingError(f"{name}: there is no such setting{_suggestion(name, own_names)}")
    return meaning


def _foreign_name(name: str, value: object, own_names: Mapping[str, object]) -> Assignments | None:
    """Return our settings for a name of Kafka's or Pulsar's, None if they have no such name."""
    if name in SPECIAL:
        return SPECIAL[name](name, value)
    if name in RENAMED:
        own_name, factor = RENAMED[name]
        return {own_name: value if factor == 1 else _scaled(name, value, factor)}
    for section in ("kafka", "topics", "server"):
        kafka_name = f"{section}.{name.replace('.', '_')}"
        if "." in name and "_" not in name and kafka_name in own_names:
            return {kafka_name: value}
    return None


def _is_kafkas(name: str) -> bool:
    """Return whether a name is Kafka's; Pulsar's have no dots."""
    return "." in name or name in SPECIAL


def _without_section(
    name: str, value: object, own_names: Mapping[str, object]
) -> Assignments | None:
    """Return the setting for a name of ours without its section, if only one section has it.

    Raises:
        SettingError: several have it.
    """
    sections = {own.partition(".")[0] for own in own_names}
    meant = [own for own in own_names if own.partition(".")[2] == name and name not in sections]
    if len(meant) > 1:
        raise SettingError(f"{name}: expected one of {', '.join(meant)}")
    return {meant[0]: value} if meant else None


def _scaled(name: str, value: object, factor: int) -> int:
    number: int = convert(name, int, value)
    # -1 switches a limit off and is no amount.
    return number if number < 0 else number * factor


def _suggestion(name: str, own_names: Mapping[str, object]) -> str:
    import difflib  # only a mistake needs it

    dotted = [own.partition(".")[2].replace("_", ".") for own in own_names]
    near = difflib.get_close_matches(name, [*own_names, *dotted, *RENAMED, *SPECIAL], n=1)
    return f"; did you mean {near[0]}?" if near else ""
