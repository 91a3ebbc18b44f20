"""The fixture that other projects' tests use."""

import pytest

from kledger.healthcheck import check
from kledger.native.rpc.client import RpcClient
from kledger.testing import FaultyServer

pytest_plugins = ["pytester"]


def test_fixture_is_the_address_of_a_running_server(kledger_server: str) -> None:
    assert check(kledger_server, 60) is None


async def test_fixture_for_native_clients_is_an_address_to_connect_to(
    kledger_native_server: str,
) -> None:
    client = RpcClient(kledger_native_server.removeprefix("kledger://"))
    await client.connect(timeout_ms=60_000)
    await client.close()


def test_broker_in_this_process_answers(kledger_broker: FaultyServer) -> None:
    assert check(kledger_broker.kafka_address, 60) is None


def test_broker_serves_both_kinds_of_programs_where_warnings_are_errors(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COV_CORE_SOURCE", raising=False)
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
        "filterwarnings = error"
    )
    pytester.makepyfile(
        """
        import asyncio
        import pytest

        async def test_on_a_loop(kledger_broker):
            from aiokafka import AIOKafkaProducer

            address = kledger_broker.kafka_address
            async with AIOKafkaProducer(bootstrap_servers=address) as producer:
                hold = kledger_broker.hold_next("Produce")
                sending = asyncio.ensure_future(producer.send_and_wait("orders", b"one"))
                await hold.reached()
                hold.release()
                assert (await sending).offset == 0

        @pytest.mark.parametrize("turn", range(3))
        def test_without_one(kledger_broker, turn):
            import kledger.healthcheck

            assert kledger.healthcheck.check(kledger_broker.kafka_address, 60) is None
            kledger_broker.fail_next("sync")
            kledger_broker.hold_next("Fetch")
            kledger_broker.restart()
            assert kledger.healthcheck.check(kledger_broker.kafka_address, 60) is None
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=4)


def test_project_with_folders_of_our_names_where_warnings_are_errors(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project's own `ledger` and `runtime` are not hidden by ours, whatever fixture it uses."""
    monkeypatch.delenv("COV_CORE_SOURCE", raising=False)
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
        "filterwarnings = error\npythonpath = ."
    )
    for name in ("ledger", "runtime"):
        (pytester.path / name).mkdir()
        (pytester.path / name / "__init__.py").write_text("balance = 3\n")
        (pytester.path / name / "clock.py").write_text("hands = 2\n")
    pytester.makepyfile(
        """
        import socket

        import ledger.clock
        import runtime.clock

        import kledger
        import kledger.ledger


        def test_server_in_a_process_of_its_own(kledger_server):
            host, port = kledger_server.split(":")
            socket.create_connection((host, int(port))).close()


        def test_broker_in_this_process(kledger_broker):
            import kledger.healthcheck

            assert kledger.healthcheck.check(kledger_broker.kafka_address, 60) is None


        async def test_native_client_and_ledger(tmp_path):
            async with kledger.embedded(None) as client:
                async with await client.create_producer("orders") as producer:
                    await producer.send(b"one")
            async with kledger.ledger.LedgerStore.open(tmp_path / "data") as store:
                await store.open_managed_ledger("m")
            assert (3, 2) == (ledger.balance, ledger.clock.hands)
            assert (3, 2) == (runtime.balance, runtime.clock.hands)
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=3)
