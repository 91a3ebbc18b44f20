"""What an operator sees while clients of a real server meet a damaged or exhausted storage.

Clients got KAFKA_STORAGE_ERROR or a closed connection, an operator nothing: no line in the log, no
metric, and `/health` answered "serving".
"""

import asyncio
import resource
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.request import urlopen

from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest
from kledger.gateway.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kledger.process import ServerProcess
from tests.gateway.running import batch, fetch, produce
from tests.gateway.wire_client import WireClient

VALUE = b"a value that can be found in the file"


def started(path: Path) -> ServerProcess:
    """A server whose readers need the disk."""
    return ServerProcess(
        "--data", str(path), "--admin", "127.0.0.1:0", "--set", "storage.cache_bytes=0"
    )


def connected(server: ServerProcess) -> WireClient:
    host, _, port = server.kafka_address.rpartition(":")
    return WireClient(host, int(port))


def page(server: ServerProcess, name: str) -> str:
    with urlopen(f"http://{server.admin_address}/{name}") as response:
        assert 200 == response.status
        return str(response.read().decode())


def counted(server: ServerProcess, kind: str) -> float:
    start = f'kledger_storage_errors_total{{kind="{kind}"}} '
    (line,) = [each for each in page(server, "metrics").splitlines() if each.startswith(start)]
    return float(line.removeprefix(start))


def limit(server: ServerProcess, kind: int, soft: int) -> None:
    _, hard = resource.prlimit(server.pid, kind)
    resource.prlimit(server.pid, kind, (soft if soft >= 0 else hard, hard))


def damage(folder: Path) -> None:
    """Change one byte of a stored entry."""
    (log,) = [each for each in folder.rglob("*.log") if VALUE in each.read_bytes()]
    with log.open("r+b") as file:
        file.seek(log.read_bytes().index(VALUE))
        file.write(b"A")


def open_files(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


async def create(client: WireClient) -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    answer = await client.ask(CreateTopicsRequest(topics=[topic]), 7)
    assert 0 == answer.topics[0].error_code


async def append(client: WireClient) -> int:
    answer = await client.ask(produce({0: batch(VALUE)}), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


async def read(client: WireClient) -> int:
    answer = await client.ask(fetch({0: 0}), 12)
    return int(answer.responses[0].partitions[0].error_code)


async def test_damaged_entry_is_logged_counted_and_in_health(tmp_path: Path) -> None:
    with started(tmp_path) as server:
        async with connected(server) as client:
            await create(client)
            assert 0 == await append(client)
            assert 0 == await read(client)
            assert "serving\n" == page(server, "health")
            damage(tmp_path)
            for _ in range(50):
                assert ErrorCode.KAFKA_STORAGE_ERROR == await read(client)
            first, line = page(server, "health").splitlines()
            assert "serving, degraded" == first
            assert line.startswith("corrupt_entry: 50 times from ")
            assert "t-partition-0" in line
            assert 50 == counted(server, "corrupt_entry")
            assert 1 == server.log_text().count("storage fault corrupt_entry")
            assert 0 == await append(client)
            assert page(server, "health").startswith("serving, degraded\n")


async def test_full_disk_is_in_health_until_a_write_succeeds(tmp_path: Path) -> None:
    with started(tmp_path) as server:
        async with connected(server) as client:
            await create(client)
            assert 0 == await append(client)
            limit(server, resource.RLIMIT_FSIZE, 0)
            for _ in range(20):
                assert ErrorCode.KAFKA_STORAGE_ERROR == await append(client)
            assert "\ndisk_full: 20 times from " in page(server, "health")
            assert 20 == counted(server, "disk_full")
            limit(server, resource.RLIMIT_FSIZE, -1)  # its log, too, could not be written to
            assert 0 == await append(client)
            assert "serving\n" == page(server, "health")
            assert "storage fault disk_full has ended, seen 20 times" in server.log_text()


async def test_limit_of_open_files_is_in_health_and_the_storage_keeps_some(tmp_path: Path) -> None:
    with started(tmp_path) as server:
        async with connected(server) as client, AsyncExitStack() as others:
            await create(client)
            limit(server, resource.RLIMIT_NOFILE, open_files(server) + 64)
            closed = 0
            for _ in range(80):
                other = await others.enter_async_context(connected(server))
                other.send(MetadataRequest(topics=[]), 9)
                try:
                    await other.receive()
                except (asyncio.IncompleteReadError, ConnectionResetError):
                    closed += 1
            assert 0 < closed < 80
            assert (0, 0) == (await append(client), await read(client))
            assert closed == counted(server, "open_files")
            assert "\nopen_files: " in page(server, "health")
            assert 1 == server.log_text().count("storage fault open_files (")
