"""The fixture that other projects' tests use."""

import pytest

from kledger.healthcheck import check
from native.rpc_client import RpcClient

pytest_plugins = ["pytester"]


def test_fixture_is_the_address_of_a_running_server(kledger_server: str) -> None:
    assert check(kledger_server, 60) is None


async def test_fixture_for_native_clients_is_an_address_to_connect_to(
    kledger_native_server: str,
) -> None:
    client = RpcClient(kledger_native_server.removeprefix("kledger://"))
    await client.connect(timeout_ms=60_000)
    await client.close()


def test_fixture_works_beside_folders_with_our_names(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project that has a folder `ledger` of its own must still be able to use the fixture."""
    monkeypatch.delenv("COV_CORE_SOURCE", raising=False)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    (pytester.path / "ledger").mkdir()
    (pytester.path / "ledger" / "__init__.py").write_text("balance = 3\n")
    pytester.makepyfile(
        """
        import socket
        import ledger

        def test_server(kledger_server):
            assert ledger.balance == 3
            host, port = kledger_server.split(":")
            socket.create_connection((host, int(port))).close()
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
