"""`kledger serve --workers 2`, with real workers."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

import kledger.sync
from kledger.cli import run
from kledger.healthcheck import check
from kledger.native.rpc.client import RpcClient
from kledger.process import ServerProcess, arguments_for
from kledger.settings import load
from kledger.wiring import BrokerServer, CannotStart
from tests.kledger.workers.running_workers import (
    GUARD_SECONDS,
    RunningWorkers,
    command_line,
    fixed_ports,
)
from tests.security.certificates import authority

ANY = "127.0.0.1:0"


class StartedWorkers:
    """Two workers that the tests of this module share, and where each listens now."""

    def __init__(self, running: RunningWorkers, data: Path) -> None:
        self.running = running
        self.data = data
        found = {}
        for _ in range(2):
            index = int(running.wait_logged(r"worker (\d) is ready: ")[1])
            found[index] = running.lines[-1]
        parts = [found[index].split("is ready: ")[1].split(", process ") for index in range(2)]
        self.addresses = [dict(part.split("=", 1) for part in each.split()) for each, _ in parts]
        self.process_ids = [int(each) for _, each in parts]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedWorkers]:
    data = tmp_path_factory.mktemp("workers") / "data"
    with RunningWorkers("--data", str(data), "--native", ANY, "--admin", ANY) as running:
        yield StartedWorkers(running, data)


def test_ready_line_has_the_addresses_for_clients(two: StartedWorkers) -> None:
    ready = two.running.ready
    own = [each[name] for each in two.addresses for name in ("kafka", "native")]
    assert 6 == len({ready["kafka"], ready["native"], *own})
    assert [each["admin"] for each in two.addresses] == ready["admin"].split(",")


def test_every_worker_answers_on_its_own_ports_and_on_the_one_of_all(two: StartedWorkers) -> None:
    for address in (*(each["kafka"] for each in two.addresses), *[two.running.ready["kafka"]] * 20):
        assert check(address, 60) is None


async def test_native_clients_connect_to_either_kind_of_port(two: StartedWorkers) -> None:
    own = [each["native"] for each in two.addresses]
    for address in (*own, two.running.ready["native"]):
        client = RpcClient(address)
        await client.connect(timeout_ms=60_000)
        await client.close()


def test_every_worker_has_its_store_and_its_administrators(two: StartedWorkers) -> None:
    found = {each for each in os.listdir(two.data) if not each.startswith((".", "shared."))}
    assert {"lock", "worker-0", "worker-1", "workers.json"} == found
    for address in two.running.ready["admin"].split(","):
        host, port = address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), 60) as connection:
            connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.0 200")


def test_list_of_processes_and_log_say_which_worker(two: StartedWorkers) -> None:
    for index, process_id in enumerate(two.process_ids):
        words = command_line(process_id)
        assert ["serve", "--worker", f"{two.data}/worker-{index}"] == list(words[-3:])
    log = "".join(two.running.lines)
    for index, each in enumerate(two.addresses):
        assert (
            f"INFO worker-{index} kledger.wiring: serving Kafka clients on {each['kafka']}" in log
        )


def test_second_parent_on_the_folder_is_refused(
    two: StartedWorkers, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(two.data)
    assert 2 == run(["serve", "--workers", "2", "--data", data, "--kafka", ANY])
    assert f"kledger: data folder {data} is in use\n" == capsys.readouterr().err


def test_port_of_workers_is_refused_to_other_servers(
    two: StartedWorkers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernel would let servers of one user share it."""
    data = tmp_path / "data"
    for flag, name in (("--kafka", "kafka"), ("--native", "native")):
        for address in (two.running.ready[name], two.addresses[0][name]):
            others = [] if flag == "--kafka" else ["--kafka", "none"]
            for workers in ([], ["--workers", "1"]):
                command = ["serve", *workers, "--data", str(data), *others, flag, address]
                assert 2 == run(command)
                assert f"kledger: {name} {address}: Address already in use\n" == (
                    capsys.readouterr().err
                )
    assert not data.exists()


@pytest.mark.parametrize("command", [["serve", "--kafka", ANY], ["doctor"], ["ledger", "list"]])
def test_other_commands_name_the_folders_of_the_workers(
    two: StartedWorkers, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == run([*command, "--data", str(two.data)])
    assert (
        f"kledger: data folder {two.data} is that of a server with workers, which have their own: "
        f"{two.data}/worker-0, {two.data}/worker-1\n"
    ) == capsys.readouterr().err


def test_all_kinds_of_listeners_are_shared(tmp_path: Path) -> None:
    """With TLS and without, and by name: what each advertises is a port of its own."""
    server = authority().issue("server", is_server=True)
    (tmp_path / "server.pem").write_text(server.key + server.certificate)
    arguments = arguments_for(
        {
            "listeners": f"INSIDE://{ANY},OUTSIDE://{ANY}",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL",
            "native.tls": True,
            "ssl.keystore.location": tmp_path / "server.pem",
        }
    )
    data = str(tmp_path / "data")
    with RunningWorkers("--data", data, "--native", ANY, *arguments) as running:
        two = StartedWorkers(running, tmp_path)
        for each in (running.ready, *two.addresses):
            inside, outside = each["kafka"].split(",")
            for _ in range(10):
                assert check(inside, 60) is None
                assert check(outside, 60, has_tls=True) is None
            ca = authority().pem
            with kledger.sync.connect(f"kledger+tls://{each['native']}", ca=ca) as client:
                if "orders" not in client.topics():
                    client.create_topic("orders", partitions=2)
                assert 2 == len(client.topic_stats("orders").partitions)
        assert 0 == running.stop()


def test_killed_worker_is_back_with_its_records(tmp_path: Path) -> None:
    """It has its port again, and a producer of before goes on."""
    with RunningWorkers("--data", str(tmp_path), "--set", "num.partitions=2") as running:
        started = StartedWorkers(running, tmp_path)
        producer = Producer({"bootstrap.servers": running.ready["kafka"]})
        produce(producer, b"before")
        os.kill(started.process_ids[1], signal.SIGKILL)
        addresses, process_id = running.wait_worker(1)
        assert started.addresses[1] == addresses
        assert started.process_ids[1] != process_id
        produce(producer, b"after")
        assert sorted([b"before", b"after"] * 2) == consumed(running.ready["kafka"], 4)
        assert 0 == running.stop(), "".join(running.lines)
    log = "".join(running.lines)
    assert f"worker 1, process {started.process_ids[1]}: signal 9" in log
    assert log.count("stopping: SIGTERM") == 3


def produce(producer: Producer, value: bytes) -> None:
    """Write a record into each of two partitions."""
    for partition in range(2):
        producer.produce("orders", value, partition=partition)
    assert 0 == producer.flush(GUARD_SECONDS)


def consumed(address: str, count: int) -> list[bytes]:
    """Return the values of so many records, sorted."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "-"})
    consumer.assign([TopicPartition("orders", each, OFFSET_BEGINNING) for each in range(2)])
    records = consumer.consume(count, GUARD_SECONDS)
    consumer.close()
    return sorted(record.value() or b"" for record in records)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_workers_end_in_order_with_the_parent(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with RunningWorkers("--data", str(tmp_path)) as running:
            os.kill(running.process.pid, number)
            assert 0 == running.wait_ended(), "".join(running.lines)
    finally:
        signal.signal(number, before)


def test_signal_to_all_processes_is_one_order_to_stop(tmp_path: Path) -> None:
    """A service manager sends it to each, and the parent passes its own on."""
    with RunningWorkers("--data", str(tmp_path)) as running:
        started = StartedWorkers(running, tmp_path)
        for process_id in (*started.process_ids, running.process.pid, *started.process_ids):
            with suppress(ProcessLookupError):  # it may have ended by the first one
                os.kill(process_id, signal.SIGTERM)
        assert 0 == running.wait_ended(), "".join(running.lines)


def test_workers_end_when_the_parent_is_killed(tmp_path: Path) -> None:
    """Their log ends with the last of them."""
    with RunningWorkers("--data", str(tmp_path)) as running:
        running.process.kill()
        assert -signal.SIGKILL == running.wait_ended()
        assert 2 == "".join(running.lines).count("stopping: the parent process has ended")


def test_killed_parent_can_be_started_again_at_once(tmp_path: Path) -> None:
    """Its workers may still have their ports and folders."""
    address = f"127.0.0.1:{fixed_ports(3)}"
    with RunningWorkers("--data", str(tmp_path), kafka=address) as first:
        first.process.kill()
        first.process.wait()
        with RunningWorkers("--data", str(tmp_path), kafka=address) as second:
            assert address == second.ready["kafka"]
            assert check(address, 60) is None


def test_mistake_of_a_worker_ends_all_with_its_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    assert 0 == _workers_folder(tmp_path / "data")
    (tmp_path / "data" / "worker-1").write_text("not a folder")
    assert 2 == run(["serve", "--workers", "2", "--data", str(tmp_path / "data"), "--kafka", ANY])
    assert "worker-1" in capfd.readouterr().err


def _workers_folder(data: Path) -> int:
    """Make a folder of two workers."""
    with RunningWorkers("--data", str(data)) as running:
        code = running.stop()
    for file in sorted((data / "worker-1").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    (data / "worker-1").rmdir()
    return code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0"], "server.workers: expected a whole number from 1 to 64, got 0"),
        (["--workers", "two"], "server.workers: expected a whole number, got 'two'"),
        (["--workers", "2", "--native", "127.0.0.1:9094"], "native: port 9094 is taken by kafka"),
        (
            ["--workers", "2", "--kafka", ANY, "--set", "node.id=2147483647"],
            "node.id: expected at most 2147483646 with 2 workers",
        ),
    ],
)
def test_mistake_is_one_line_and_touches_nothing(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assert 2 == run(["serve", "--data", str(data), *arguments])
    assert capsys.readouterr().err.startswith(f"kledger: {message}")
    assert not data.exists()


def test_workers_need_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == run(["serve", "--memory", "--workers", "2", "--kafka", ANY])
    assert capsys.readouterr().err.startswith("kledger: server.memory: expected a data folder")


def test_folder_of_a_server_without_workers_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ServerProcess("--data", str(tmp_path)):
        pass
    before = sorted(os.listdir(tmp_path))
    assert 2 == run(["serve", "--data", str(tmp_path), "--workers", "2", "--kafka", ANY])
    assert f"{tmp_path} is the data folder of a server without workers" in capsys.readouterr().err
    assert before == sorted(os.listdir(tmp_path))


def test_process_that_no_parent_has_started_is_no_worker(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert 2 == run(["serve", "--worker", "d/worker-0"])
    assert "kledger: --worker: expected a process that `kledger serve --workers` has started\n" == (
        capfd.readouterr().err
    )


async def test_server_inside_another_program_has_no_workers() -> None:
    settings = load(flags={"server.workers": 2, "server.memory": True, "server.kafka": ANY})
    with pytest.raises(CannotStart, match=r"server\.workers: expected none") as caught:
        await BrokerServer(settings, on_crash=lambda _: None).start()
    assert caught.value.is_mistake
