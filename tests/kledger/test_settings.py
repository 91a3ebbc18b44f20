"""Sources over sources; and one clear line about the first thing that is wrong."""

import re
from pathlib import Path

import pytest

from kledger.setting_values import SettingError
from kledger.settings import RANGES, Settings, load, own_names


def toml(folder: Path, text: str) -> Path:
    file = folder / "k.toml"
    file.write_text(text)
    return file


def test_defaults_are_kafkas_port_and_a_folder_here() -> None:
    assert Settings() == load()
    assert ("./kledger-data", "127.0.0.1:9092") == (load().server.data, load().server.kafka)


def test_later_sources_win(tmp_path: Path) -> None:
    file = toml(tmp_path, "[kafka]\nnode_id = 2\nnum_partitions = 2\ngroup_max_size = 2\n")
    settings = load(
        file=file,
        environment={"KLEDGER_KAFKA_NUM_PARTITIONS": "3", "KLEDGER_KAFKA_GROUP_MAX_SIZE": "3"},
        assignments=["group.max.size=4", "server.data=x"],
        flags={"server.data": "y"},
    )
    kafka = settings.kafka
    assert (2, 3, 4) == (kafka.node_id, kafka.num_partitions, kafka.group_max_size)
    assert "y" == settings.server.data


def test_kafkas_names_work_in_toml_with_and_without_quotes(tmp_path: Path) -> None:
    """To TOML `num.partitions = 3` is a table in a table."""
    file = toml(tmp_path, 'num.partitions = 3\n"node.id" = 4\n[server]\nlog_level = "error"\n')
    settings = load(file=file)
    assert (3, 4) == (settings.kafka.num_partitions, settings.kafka.node_id)
    assert "error" == settings.server.log_level


def test_topic_defaults_are_kept_under_kafkas_broker_names(tmp_path: Path) -> None:
    file = toml(tmp_path, "log.retention.hours = 5\n[topics]\nlog_preallocate = true\n")
    settings = load(
        file=file,
        environment={"KLEDGER_TOPICS_LOG_SEGMENT_BYTES": "2000000"},
        assignments=["num.partitions=3", "message.max.bytes=77", "batch.validation=full"],
    )
    assert {
        "log.retention.hours": "5",
        "log.preallocate": "true",
        "log.segment.bytes": "2000000",
        "message.max.bytes": "77",
    } == settings.topics.configs
    assert (3, "full") == (settings.topics.num_partitions, settings.topics.batch_validation)
    assert (3, 77) == (settings.kafka.num_partitions, settings.kafka.message_max_bytes)


@pytest.mark.parametrize("name", ["compaction.strategy.modules", "compaction_strategy_modules"])
def test_modules_of_strategies_are_a_list(name: str) -> None:
    settings = load(assignments=[f"{name}=acme.strategies, own"])
    assert ("acme.strategies", "own") == settings.topics.compaction_strategy_modules
    with pytest.raises(SettingError, match=r"compaction\.strategy\.modules: expected .* '-own'"):
        load(assignments=[f"{name}=-own"])


def test_variables_of_kubernetes_are_not_ours() -> None:
    """A service called kledger puts its address into every container beside it."""
    environment = {"KLEDGER_PORT": "tcp://10.0.0.1:9092", "KLEDGER_SERVICE_HOST": "10.0.0.1"}
    assert Settings() == load(environment=environment | {"PATH": "/bin"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[kafka]\nnode_id = 'x'", "kafka.node_id: expected a whole number, got 'x' (from"),
        ("[kafka]\nnode_id = -1", "kafka.node_id: expected a whole number from 0 to 2147483647"),
        ("kafka = 3", "kafka: there is no such setting"),
        ("[nothing]\nx = 1", "nothing.x: there is no such setting"),
        ("[kafka", "not TOML"),
    ],
)
def test_wrong_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        load(file=toml(tmp_path, text))
    assert message in str(caught.value)
    assert "k.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"none.toml: No such file"):
        load(file=tmp_path / "none.toml")


def test_unknown_variable_is_refused() -> None:
    with pytest.raises(SettingError, match=r"KLEDGER_KAFKA_NODEID: there is no such setting"):
        load(environment={"KLEDGER_KAFKA_NODEID": "1"})


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("node.id", "--set: expected KEY=VALUE, got 'node.id'"),
        ("=3", "--set: expected KEY=VALUE, got '=3'"),
        ("num.partitions=0", "num.partitions: expected a whole number from 1 to 100000, got 0"),
        ("storage.durability=never", "storage.durability: expected fsync or os, got 'never'"),
        ("server.kafka=here", "server.kafka: expected HOST:PORT"),
        ("server.native=127.0.0.1", "server.native: expected HOST:PORT"),
        ("server.admin=127.0.0.1", "server.admin: expected HOST:PORT"),
        ("native.keepalive_ms=0", "native.keepalive_ms: expected a whole number from 100"),
        ("group.min.session.timeout.ms=9999999", "group.min.session.timeout.ms: expected at most"),
        ("log.retention.ms=x", "Invalid value x for configuration log.retention.ms"),
        ("log.segment.bytes=1", "Invalid value 1 for configuration log.segment.bytes"),
        ("topics.configs=1", "topics.configs: there is no such setting"),
        ("storage.committer_queue_bytes_max=0", "storage.committer_queue_bytes_max: expected"),
        ("log.retention.check.interval.ms=0", "log.retention.check.interval.ms: expected a whole"),
    ],
)
def test_wrong_assignment_is_refused(assignment: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        load(assignments=[assignment])
    assert str(caught.value).startswith(message)


def test_every_range_belongs_to_a_setting() -> None:
    assert set() == RANGES.keys() - own_names().keys()


@pytest.mark.parametrize(
    ("assignment", "mistake"),
    [
        ("super.users=root", "super.users: principal 'root', expected TYPE:NAME"),
        ("authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "StandardAuthorizer"),
        ("allow.everyone.if.no.acl.found=maybe", "allow.everyone.if.no.acl.found"),
    ],
)
def test_mistake_in_the_settings_of_rules_ends_the_start(assignment: str, mistake: str) -> None:
    with pytest.raises(SettingError, match=re.escape(mistake)):
        load(assignments=[assignment])
