"""A server process is always ended, and says why it did not become ready."""

import os
from pathlib import Path

import pytest

from kledger.healthcheck import check
from kledger.native.rpc.client import RpcClient
from kledger.process import ServerNotReady, ServerProcess, arguments_for


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_process_is_ended_when_the_block_fails() -> None:
    server = ServerProcess("--memory")
    pids = []

    def failing_block() -> None:
        with server:
            pids.append(server.pid)
            assert check(server.kafka_address, 60) is None
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing_block()
    assert [False] == [is_running(pid) for pid in pids]


async def test_ready_line_names_the_native_listener() -> None:
    with ServerProcess("--memory") as server:
        assert "" == server.native_address
    with ServerProcess("--memory", native="127.0.0.1:0") as server:
        client = RpcClient(server.native_address)
        await client.connect(timeout_ms=60_000)
        await client.close()
        assert 0 == server.stop()
        assert "error" not in server.log_text().lower()


def test_server_that_does_not_start_shows_what_it_said() -> None:
    server = ServerProcess("--memory", *arguments_for({"num.partitions": 0}))
    with pytest.raises(ServerNotReady, match=r"num.partitions: expected a whole number from 1"):
        server.start()


def test_killed_server_starts_again_on_its_data(tmp_path: Path) -> None:
    with ServerProcess("--data", str(tmp_path)) as server:
        server.kill()
    with ServerProcess("--data", str(tmp_path)) as server:
        assert check(server.kafka_address, 60) is None


def test_settings_become_arguments() -> None:
    assert ["--set", "a=1", "--set", "b=x"] == arguments_for({"a": 1, "b": "x"})
