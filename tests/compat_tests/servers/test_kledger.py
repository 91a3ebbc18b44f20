"""The command line under test is the one that a user types."""

from pathlib import Path

from compat_tests.servers.kledger import KledgerServer


def test_command_names_folder_listener_durability_and_settings(tmp_path: Path) -> None:
    server = KledgerServer(tmp_path, durability="os", settings={"num.partitions": "3"})
    program, *words = server.command()
    assert Path(program).name == "kledger"
    assert words == [
        *("serve", "--data", str(tmp_path / "data"), "--kafka", "127.0.0.1:0"),
        *("--durability", "os", "--set", "num.partitions=3"),
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
