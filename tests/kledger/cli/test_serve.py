"""The server as a command: ready line, exit codes, and nothing touched by a mistake."""

import asyncio
import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from kledger.cli import run
from kledger.healthcheck import check
from kledger.process import ServerProcess


def test_ready_line_names_every_listener_and_the_server_answers() -> None:
    command = [sys.executable, "-P", "-m", "kledger", "serve", "--memory", "--kafka", "127.0.0.1:0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            match = re.fullmatch(r"kledger ready kafka=(127\.0\.0\.1:\d+) native=- admin=-\n", line)
            assert match is not None, line
            assert check(match[1], 60) is None
            process.terminate()
            assert 0 == process.wait(60)
            assert "" == process.stdout.read(), "logs go to standard error"
        finally:
            process.kill()


@contextmanager
def inherited(number: signal.Signals, action: signal.Handlers) -> Iterator[None]:
    """Let processes start with that action, whatever this one was started with."""
    before = signal.signal(number, action)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_stops_in_order_and_data_can_be_opened_again(
    tmp_path: Path, number: signal.Signals
) -> None:
    with inherited(number, signal.SIG_DFL):
        for _ in range(2):
            with ServerProcess("--data", str(tmp_path / "data")) as server:
                os.kill(server.pid, number)
                assert 0 == server.wait(60), server.log_text()
                assert f"stopping: {number.name}" in server.log_text()


def test_ignored_hangup_does_not_stop_it() -> None:
    """Under nohup a server continues when its terminal is closed."""
    with inherited(signal.SIGHUP, signal.SIG_IGN), ServerProcess("--memory") as server:
        os.kill(server.pid, signal.SIGHUP)
        assert check(server.kafka_address, 60) is None
        os.kill(server.pid, signal.SIGTERM)
        assert 0 == server.wait(60)
        assert "SIGHUP" not in server.log_text()


def test_variables_of_kubernetes_services_are_one_line_of_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A service called kledger-kafka puts its address into every container beside it."""
    monkeypatch.setenv("KLEDGER_KAFKA_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KLEDGER_KAFKA_PORT_9092_TCP_ADDR", "10.0.0.1")
    monkeypatch.setenv("KLEDGER_KAFKA_ADVERTISED_PORT", "9099")
    with ServerProcess("--memory") as server:
        said = [line for line in server.log_text().splitlines() if "WARNING" in line]
    assert 1 == len(said), said
    assert said[0].endswith(
        "variables of Kubernetes services are ignored: "
        "KLEDGER_KAFKA_PORT_9092_TCP_ADDR, KLEDGER_KAFKA_SERVICE_HOST"
    )


def test_data_folder_in_use_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "data")
    with ServerProcess("--data", data) as server:
        assert 2 == run(["serve", "--data", data, "--kafka", "127.0.0.1:0"])
        assert check(server.kafka_address, 60) is None, "the first one is not disturbed"
    assert data in one_line(capsys)


def test_taken_port_is_a_mistake_and_touches_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert 2 == run(["serve", "--data", str(data), "--kafka", address])
        assert f"kledger: kafka {address}: Address already in use\n" == one_line(capsys)
        assert 2 == run(["serve", "--data", str(data), "--kafka", "none", "--native", address])
        assert f"kledger: native {address}: Address already in use\n" == one_line(capsys)
    assert not data.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "num.partition=3"], "num.partition: there is no such setting"),
        (["--set", "num.partitions=x"], "num.partitions: expected a whole number, got 'x'"),
        (["--durability", "maybe"], "storage.durability: expected fsync or os, got 'maybe'"),
        (["--kafka", "nowhere"], "server.kafka: expected HOST:PORT"),
        (["--native", "nowhere"], "server.native: expected HOST:PORT"),
        (["--admin", "nowhere"], "server.admin: expected HOST:PORT"),
        (["--config", "/nonexistent/k.toml"], "/nonexistent/k.toml: No such file or directory"),
        (["--kafka", "none"], "server.kafka: expected HOST:PORT, as no other listener is named"),
        (["--kafka", "no.such.host.invalid:1"], "kafka no.such.host.invalid:1: "),
    ],
)
def test_mistake_is_one_line_and_touches_nothing(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assert 2 == run(["serve", "--data", str(data), *arguments])
    assert one_line(capsys).startswith(f"kledger: {message}")
    assert not data.exists()


def test_environment_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KLEDGER_KAFKA_NODE_ID", "x")
    assert 2 == run(["serve", "--memory"])
    assert one_line(capsys).startswith("kledger: kafka.node_id: expected a whole number, got 'x'")


def test_data_that_is_no_folder_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert 2 == run(["serve", "--data", str(file), "--kafka", "127.0.0.1:0"])
    assert str(file) in one_line(capsys)
    assert "mine" == file.read_text()


def test_folder_of_something_else_is_a_mistake_and_touches_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert 2 == run(["serve", "--data", str(tmp_path), "--kafka", "127.0.0.1:0"])
    said = one_line(capsys)
    assert f"kledger: data folder {tmp_path} holds something else, such as notes.txt; " in said
    assert ["notes.txt"] == [path.name for path in tmp_path.iterdir()]


def test_folder_that_may_not_be_read_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of the tests may be allowed everything, so the system's answer is simulated."""

    def refuse(path: object) -> list[str]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "listdir", refuse)
    assert 2 == run(["serve", "--data", str(tmp_path), "--kafka", "127.0.0.1:0"])
    said = one_line(capsys)
    assert f"kledger: data folder {tmp_path} cannot be used: Permission denied\n" == said


def test_damaged_log_is_a_failure_that_names_file_and_position(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with ServerProcess("--data", str(data)) as server:
        asyncio.run(_produce(server.kafka_address))
        server.kill()
    log = data / "log" / "00000001.log"
    with log.open("r+b") as file:
        file.write(b"X")
    before = log.read_bytes()
    assert 1 == run(["serve", "--data", str(data), "--kafka", "127.0.0.1:0"])
    said = one_line(capsys)
    assert said.startswith(f"kledger: {log} is damaged at position 0: ")
    assert said.endswith(f"; `kledger doctor --data {data}` lists the damage\n")
    assert before == log.read_bytes()


@pytest.mark.parametrize("damage", ["cut", "changed", "missing"])
def test_damaged_index_is_a_failure_that_names_the_file_and_the_doctor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    """RocksDB notices the first when it opens the table, the second when it reads a row."""
    data = tmp_path / "data"
    with ServerProcess("--data", str(data)) as server:
        asyncio.run(_produce(server.kafka_address))
    for table in (data / "index").glob("*.sst"):
        content = bytearray(table.read_bytes())
        content[3] ^= 0xFF
        table.write_bytes(content if damage == "changed" else content[:-7])
    if damage == "missing":
        (data / "index" / "CURRENT").unlink()
    assert 1 == run(["serve", "--data", str(data), "--kafka", "127.0.0.1:0"])
    said = one_line(capsys)
    assert str(data / "index") in said
    assert said.endswith(f"; `kledger doctor --data {data}` lists the damage\n")
    assert 1 == run(["doctor", "--data", str(data)]), "the doctor must find it, too"


def test_storage_that_cannot_be_closed_is_a_failure(tmp_path: Path) -> None:
    """Somebody removes the folder below a running server."""
    data = tmp_path / "data"
    with ServerProcess("--data", str(data), "--durability", "os") as server:
        asyncio.run(_produce(server.kafka_address))
        shutil.rmtree(data)
        os.kill(server.pid, signal.SIGTERM)
        assert 1 == server.wait(60)
        assert "kledger: the server did not close everything: " in server.log_text()


async def _produce(address: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        await producer.send_and_wait("orders", b"one")


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what was said on standard error; logs of a start that got further are left out."""
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("kledger:")]
    assert 1 == len(said), said
    return said[0] + "\n"
