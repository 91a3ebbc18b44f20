"""Kafka's and Pulsar's names for what we have too."""

import pytest

from kledger.setting_names import RENAMED, translate
from kledger.setting_values import SettingError
from kledger.settings import own_names

OWN = own_names()


@pytest.mark.parametrize(
    ("name", "value", "meaning"),
    [
        ("kafka.num_partitions", "3", {"kafka.num_partitions": "3"}),
        ("num.partitions", "3", {"kafka.num_partitions": "3"}),
        ("node.id", 7, {"kafka.node_id": 7}),
        ("broker.id", 7, {"kafka.node_id": 7}),
        ("auto.create.topics.enable", "false", {"kafka.auto_create_topics_enable": "false"}),
        ("group.initial.rebalance.delay.ms", "0", {"kafka.group_initial_rebalance_delay_ms": "0"}),
        ("offsets.retention.minutes", "5", {"kafka.offsets_retention_minutes": "5"}),
        ("message.max.bytes", "5", {"kafka.message_max_bytes": "5"}),
        ("log.retention.ms", "5", {"topics.log_retention_ms": "5"}),
        ("producer.id.expiration.ms", "5", {"topics.producer_id_expiration_ms": "5"}),
        ("log.dirs", "/data", {"server.data": "/data"}),
        ("listeners", "PLAINTEXT://:9095", {"server.kafka": "0.0.0.0:9095"}),
        ("listeners", "[::1]:1", {"server.kafka": "[::1]:1"}),
        (
            "advertised.listeners",
            "PLAINTEXT://broker.example:9095",
            {"kafka.advertised_host": "broker.example", "kafka.advertised_port": 9095},
        ),
        ("log.retention.check.interval.ms", 9, {"server.log_retention_check_interval_ms": 9}),
        ("managedLedgerMaxSizePerLedgerMbytes", "2", {"topics.log_segment_bytes": 2 << 20}),
        ("defaultRetentionTimeInMinutes", "-1", {"topics.log_retention_minutes": "-1"}),
        ("managedLedgerCacheSizeMB", "2", {"storage.cache_bytes": 2 * 1024 * 1024}),
        ("managedLedgerMaxLedgerRolloverTimeMinutes", 2, {"topics.log_roll_ms": 120_000}),
        ("managedLedgerMaxLedgerRolloverTimeMinutes", -1, {"topics.log_roll_ms": -1}),
        ("node_id", "0", {"kafka.node_id": "0"}),
        ("log_level", "error", {"server.log_level": "error"}),
        ("kafka.num.partitions", 3, {"kafka.num_partitions": 3}),
        ("kafka.broker.id", 3, {"kafka.node_id": 3}),
        ("kafka.listeners", "h:1", {"server.kafka": "h:1"}),
        ("kafka.log.retention.ms", 3, {"topics.log_retention_ms": 3}),
        ("topics.log.retention.ms", 3, {"topics.log_retention_ms": 3}),
        ("topics.message.max.bytes", 3, {"kafka.message_max_bytes": 3}),
        ("topics.defaultRetentionSizeInMB", 1, {"topics.log_retention_bytes": 1 << 20}),
        ("server.log.dirs", "/data", {"server.data": "/data"}),
    ],
)
def test_names_mean_ours(name: str, value: object, meaning: dict[str, object]) -> None:
    assert meaning == translate(name, value, OWN)


def test_every_renamed_setting_exists() -> None:
    assert [] == [own for own, _ in RENAMED.values() if own not in OWN]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("num.partition", "num.partition: there is no such setting; did you mean num.partitions?"),
        ("kafka.nod_id", "kafka.nod_id: there is no such setting; did you mean kafka.node_id?"),
        ("num_partition", "num_partition: there is no such setting; did you mean"),
        ("max_connections", "max_connections: expected one of kafka.max_connections, native.max"),
        ("storage.num.partitions", "storage.num.partitions: there is no such setting"),
        ("kafka.managedLedgerCacheSizeMB", "kafka.managedLedgerCacheSizeMB: there is no such"),
        ("kafka", "kafka: there is no such setting"),
        ("zzz", "zzz: there is no such setting"),
    ],
)
def test_unknown_name_is_refused_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        translate(name, "1", OWN)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("value", ["h", 5])
def test_a_listener_without_an_address_is_refused(value: object) -> None:
    with pytest.raises(SettingError, match=r"listeners: expected"):
        translate("listeners", value, OWN)


@pytest.mark.parametrize("value", ["SSL://h:1", "PLAINTEXT://a:1,PLAINTEXT://b:2"])
@pytest.mark.parametrize("section", ["", "kafka."])
def test_listeners_other_than_one_plaintext_are_kept_as_they_are(value: str, section: str) -> None:
    assert {"kafka.listener_addresses": value} == translate(f"{section}listeners", value, OWN)
    assert {"kafka.advertised_addresses": value} == translate(
        f"{section}advertised.listeners", value, OWN
    )


@pytest.mark.parametrize("section", ["", "kafka."])
def test_settings_of_a_listener_are_entries_of_a_table(section: str) -> None:
    name = "sasl_ssl.plain.sasl.jaas.config"
    assert {"kafka.listener_settings": {name: "x"}} == translate(
        f"{section}listener.name.{name}", "x", OWN
    )
