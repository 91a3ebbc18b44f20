"""InitProducerId; rows of docs/SCENARIOS.md."""

import pytest

from kledger.gateway.wire.messages.k22_init_producer_id import InitProducerIdRequest
from tests.gateway.running import running_gateway
from tests.gateway.txn_client import TxnClient, read, settled

ANY_PRODUCER = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)


@pytest.mark.parametrize("version", range(6))
async def test_row_37_every_call_gives_a_new_id_with_epoch_0(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        first = await client.ask(ANY_PRODUCER, version)
        second = await client.ask(ANY_PRODUCER, version)
        assert (0, 0, 0) == (first.error_code, first.producer_epoch, second.producer_epoch)
        assert second.producer_id > first.producer_id >= 0


async def test_an_older_id_in_the_request_changes_nothing() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=1, producer_id=77, producer_epoch=3
        )
        response = await client.ask(request, 4)
        assert (0, 0) == (response.error_code, response.producer_epoch)
        assert 77 != response.producer_id


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "error"),
    [("", 1, 42), ("x" * 5_000, 1, 42), ("x", 0, 50), ("x", -1, 50), ("x", 900_001, 50)],
)
async def test_row_111_what_cannot_be_is_refused(
    transactional_id: str, timeout_ms: int, error: int
) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        response = await client.ask(request, 4)
        assert (error, -1, -1) == (
            response.error_code,
            response.producer_id,
            response.producer_epoch,
        )


@pytest.mark.parametrize(("producer_id", "epoch"), [(-2, -1), (-1, -2), (3, -1), (-1, 0)])
async def test_half_of_an_identity_is_refused(producer_id: int, epoch: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        request = InitProducerIdRequest(
            transactional_id="x",
            transaction_timeout_ms=1,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        assert 42 == (await client.ask(request, 4)).error_code


@pytest.mark.parametrize("version", range(6))
async def test_each_producer_of_a_transactional_id_gets_the_next_epoch(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        first, second = TxnClient(client), TxnClient(client)
        assert 0 == await first.init(version=version)
        assert 0 == await second.init(version=version)
        assert (first.producer_id, first.epoch + 1) == (second.producer_id, second.epoch)


async def test_row_110_open_transaction_is_aborted_and_its_producer_fenced() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.create_topic()
        old, new = TxnClient(client), TxnClient(client)
        await old.init()
        await old.add(0)
        assert 0 == await old.produce(b"old")
        assert 51 == await new.init()
        assert 0 == await new.init()
        assert (old.producer_id, old.epoch + 2) == (new.producer_id, new.epoch)
        assert 47 == await old.produce(b"late")
        assert 90 == await old.end(commit=True)
        assert 47 == await old.end(commit=True, version=1)
        await settled(gateway)
        assert 2 == (await read(client)).last_stable_offset


@pytest.mark.parametrize(("version", "error"), [(3, 47), (4, 90), (5, 90)])
async def test_a_producer_that_was_overtaken_cannot_come_back(version: int, error: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        old, new = TxnClient(client), TxnClient(client)
        await old.init()
        expected = {"producer_id": old.producer_id, "producer_epoch": old.epoch}
        assert 0 == await old.init(version=version, **expected), (
            "no other producer initialised in between"
        )
        await new.init()
        expected = {"producer_id": old.producer_id, "producer_epoch": old.epoch}
        assert error == await old.init(version=version, **expected)
        assert 42 == await old.init(version=version, producer_id=old.producer_id)


async def test_storage_that_fails_leaves_the_transactional_id_as_it_was() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        producer = TxnClient(client)
        await producer.init()
        gateway.engine.fail_next("commit")
        assert 15 == await producer.init()
        assert 0 == producer.epoch
        assert 0 == await producer.init()
        assert 1 == producer.epoch


async def test_failing_storage_is_reported_as_loading_so_that_clients_retry() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        gateway.engine.fail_next("commit")
        assert 14 == (await client.ask(ANY_PRODUCER, 4)).error_code
        assert 0 == (await client.ask(ANY_PRODUCER, 4)).error_code
