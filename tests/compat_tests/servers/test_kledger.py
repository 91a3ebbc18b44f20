"""The command line under test is the one that a user types."""

import socket
from pathlib import Path

import pytest

from compat_tests.servers.kledger import KledgerServer


def test_command_names_folder_listener_durability_and_settings(tmp_path: Path) -> None:
    server = KledgerServer(tmp_path, durability="os", settings={"num.partitions": "3"})
    program, *words = server.command()
    assert Path(program).name == "kledger"
    assert words == [
        *("serve", "--data", str(tmp_path / "data"), "--durability", "os"),
        *("--kafka", "127.0.0.1:0", "--set", "num.partitions=3"),
    ]


def test_port_of_the_first_start_is_asked_for_again(tmp_path: Path) -> None:
    server = KledgerServer(tmp_path)
    server.port = 4711
    assert "127.0.0.1:4711" in server.command()


def test_ports_are_reserved_before_the_first_start(tmp_path: Path) -> None:
    server = KledgerServer(tmp_path, is_native=True)
    server.prepare()
    reserved = server.bootstrap, server.native_address
    server.prepare()
    assert reserved == (server.bootstrap, server.native_address)
    assert not any(address.endswith(":0") for address in reserved)
    assert set(reserved) <= set(server.command())


def test_workers_have_the_ports_behind_those_of_the_listeners(tmp_path: Path) -> None:
    server = KledgerServer(tmp_path, is_native=True, workers=2)
    server.prepare()
    words = server.command()
    assert "2" == words[words.index("--workers") + 1]
    for port in (server.port, int(server.native_address.rpartition(":")[2])):
        for own in (port, port + 1, port + 2):
            with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
                stranger.bind((server.host, own))


def test_workers_die_with_a_killed_server(tmp_path: Path) -> None:
    """Otherwise they would stop in order, which is no crash."""
    with KledgerServer(tmp_path, workers=2) as server:
        server.kill()
        assert "the parent process has ended" not in server.log_file.read_text()
        server.start()
        assert 0 == server.stop()


def test_a_killed_worker_comes_back_and_the_others_stay(tmp_path: Path) -> None:
    with KledgerServer(tmp_path, workers=2) as server:
        before = server.worker_ids()
        assert {0, 1} == before.keys()
        server.kill_part(1)
        after = server.worker_ids()
        assert before[0] == after[0]
        assert before[1] != after[1]
