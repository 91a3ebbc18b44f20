"""kledger security init: two commands give a server with TLS, logins and access rules."""

import stat
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

import kledger.sync
from kledger.cli import run
from kledger.cli.command_config import read_command_config
from kledger.process import ServerProcess
from kledger.security.jaas import parse_jaas

TIMEOUT_S = 60


def init(data: Path, *words: str) -> int:
    return run(["security", "init", "--data", str(data), "--kafka", "127.0.0.1:0", *words])


def properties_of(data: Path) -> dict[str, str]:
    lines = (data / "security" / "client.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def client_of(address: str, properties: dict[str, str], **changed: str) -> AdminClient:
    login = parse_jaas(properties["sasl.jaas.config"]).options
    return AdminClient(
        {
            "bootstrap.servers": address,
            "security.protocol": properties["security.protocol"],
            "sasl.mechanism": properties["sasl.mechanism"],
            "sasl.username": login["username"],
            "sasl.password": login["password"],
            "ssl.ca.location": properties["ssl.truststore.location"],
            **changed,
        }
    )


def test_the_first_user_connects_with_the_files_that_are_made(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert 0 == init(data)
    config = data / "security" / "kledger.toml"
    with ServerProcess("--data", str(data), "--config", str(config)) as server:
        properties = properties_of(data)
        assert client_of(server.kafka_address, properties).list_topics(timeout=TIMEOUT_S).brokers
        assert 'principal="User:admin"' in server.log_text()
        password = parse_jaas(properties["sasl.jaas.config"]).options["password"]
        assert password not in server.log_text()


def test_the_first_user_connects_to_workers(tmp_path: Path) -> None:
    """Whichever worker it meets, and to each of them."""
    data = tmp_path / "data"
    assert 0 == init(data, "--workers", "2")
    config = data / "security" / "kledger.toml"
    with ServerProcess("--data", str(data), "--config", str(config)) as server:
        for _ in range(10):
            client = client_of(server.kafka_address, properties_of(data))
            assert {1, 2} == set(client.list_topics(timeout=TIMEOUT_S).brokers)
        created = client.create_topics([NewTopic("orders", num_partitions=2)])
        created["orders"].result(TIMEOUT_S)
        specs: Any = OffsetSpec
        ends = client.list_offsets(
            {TopicPartition("orders", index): specs.latest() for index in range(2)}
        )
        assert [0, 0] == [each.result(TIMEOUT_S).offset for each in ends.values()]
        assert 0 == server.stop()


@pytest.mark.parametrize("count", ["0", "65"])
def test_count_of_workers_has_limits(
    tmp_path: Path, count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == init(tmp_path / "data", "--workers", count)
    expected = f"kledger: --workers: expected a whole number from 1 to 64, got {count}\n"
    assert expected == capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_folder_of_one_process_is_not_made_one_of_workers(tmp_path: Path) -> None:
    with ServerProcess("--data", str(tmp_path)):
        pass
    assert 2 == init(tmp_path, "--workers", "2")
    assert not (tmp_path / "security").exists()


def test_a_topic_is_forwarded_between_two_servers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each server has users and an authority of its own."""
    with ExitStack() as stack:
        servers = []
        for name in ("source", "target"):
            assert 0 == init(tmp_path / name)
            security = tmp_path / name / "security"
            server = ServerProcess(
                *("--data", str(tmp_path / name), "--config", str(security / "kledger.toml")),
                native="127.0.0.1:0",
            )
            stack.enter_context(server)
            servers.append((server.native_address, security / "client.properties"))
        (source, of_source), (target, of_target) = servers
        here = ("--native", source, "--command-config", str(of_source))
        there = ("--native", target, "--command-config", str(of_target))
        for at in (here, there):
            assert 0 == run(["topic", "create", "orders", *at])
        options = read_command_config(of_source).options()
        with kledger.sync.connect(f"kledger+tls://{source}", **options) as client:
            client.create_producer("orders").send(b"one")
        forward = ["topic", "forward", "orders", "orders", *here, "--to", target]
        until = "--until-caught-up"
        assert 0 == run([*forward, "--to-command-config", str(of_target), until])
        assert "topic orders: forwarded to orders, batches: 1" in capsys.readouterr().out
        of_stranger = tmp_path / "stranger.properties"
        of_stranger.write_text(of_target.read_text().replace('username="admin"', 'username="ann"'))
        assert 1 == run([*forward, "--to-command-config", str(of_stranger), until])
        assert "Invalid username or password" in capsys.readouterr().err


def test_everything_belongs_to_the_user_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert 0 == init(data)
    for path in (data, *data.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_a_password_of_ones_own_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text('with "quotes" and \\\n')
    assert 0 == init(tmp_path / "data", "--user", "root", "--password-file", str(file))
    login = properties_of(tmp_path / "data")["sasl.jaas.config"].replace("\\\\", "\\")
    options = parse_jaas(login).options
    assert ("root", 'with "quotes" and \\') == (options["username"], options["password"])


def test_files_that_exist_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    assert 0 == init(data)
    before = {path: path.read_bytes() for path in (data / "security").iterdir()}
    capsys.readouterr()
    assert 2 == init(data)
    assert "there is such a folder already" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in (data / "security").iterdir()}
