"""The doctor on folders that a real server has left, with damage planted in them."""

import asyncio
import os
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from kledger.cli import run
from kledger.process import ServerProcess

RECORDS = 30


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a server that was killed, with 30 records in two partitions."""
    data = tmp_path_factory.mktemp("doctor") / "data"
    with ServerProcess("--data", str(data), "--set", "num.partitions=2") as server:
        asyncio.run(_produce(server.kafka_address))
        server.kill()
    return data


@pytest.fixture
def data(left: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    copied = tmp_path / "data"
    for path in left.rglob("*"):
        if path.is_file():
            target = copied / path.relative_to(left)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return copied


async def _produce(address: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for number in range(RECORDS):
            value = b"record %d" % number
            await producer.send_and_wait("orders", value, partition=number % 2)


def doctor(data: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Run the doctor; return exit code and lines."""
    code = run(["doctor", "--data", str(data)])
    captured = capsys.readouterr()
    return code, (captured.out + captured.err).splitlines()


def test_healthy_store(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    code, [line] = doctor(data, capsys)
    assert 0 == code
    assert line.startswith("nothing is damaged: checked 1 log files with ")
    assert f" groups and {RECORDS} entries, and 2 managed ledgers" in line
    assert before == {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}


def test_damaged_record_names_file_position_and_partition(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ServerProcess("--data", str(data)) as server:  # takes the log into the index
        assert server.kafka_address
    log = data / "log" / "00000001.log"
    raw = bytearray(log.read_bytes())
    raw[raw.index(b"record 17")] ^= 1
    log.write_bytes(raw)
    code, [line, end] = doctor(data, capsys)
    assert 1 == code
    assert line.startswith(f"{log} at position ")
    assert ": partition orders-1, entry " in line
    assert line.endswith(":8: the data fails its CRC")
    assert end.startswith("1 problem: checked ")


def test_log_that_no_start_would_take(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = data / "log" / "00000001.log"
    raw = bytearray(log.read_bytes())
    raw[raw.index(b"record 17")] ^= 1
    log.write_bytes(raw)
    code, lines = doctor(data, capsys)
    assert 1 == code
    assert any(str(log) in line and "the body fails its CRC" in line for line in lines)
    assert 1 == run(["serve", "--data", str(data), "--kafka", "127.0.0.1:0"])


def test_torn_tail_is_a_note(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = data / "log" / "00000001.log"
    size = len(log.read_bytes().rstrip(b"\0"))
    os.truncate(log, size - 5)
    code, [note, end] = doctor(data, capsys)
    assert 0 == code
    assert note.startswith(f"note: the next start cuts off the trace of a crash: {log} from ")
    assert end.startswith("nothing is damaged")


def test_wrong_folders_are_mistakes(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for folder, text in (
        (tmp_path, "something else"), (tmp_path / "none", "holds no store"),
        (tmp_path / "notes.txt", "Not a directory"),
    ):  # fmt: skip
        code, [line] = doctor(folder, capsys)
        assert 2 == code
        assert text in line
    with ServerProcess("--data", str(data)):
        code, [line] = doctor(data, capsys)
    assert (2, f"kledger: data folder {data} is in use") == (code, line)
    assert 2 == run(["doctor"])
