"""InitProducerId; rows of kafka-protocol.md 6.3."""

import pytest

from gateway.wire.messages.k22_init_producer_id import InitProducerIdRequest
from tests.gateway.running import running_gateway

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


@pytest.mark.parametrize(("transactional_id", "error"), [("", 42), ("t", 35)])
async def test_row_111_transactional_ids_are_refused(transactional_id: str, error: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1)
        response = await client.ask(request, 4)
        assert (error, -1, -1) == (
            response.error_code,
            response.producer_id,
            response.producer_epoch,
        )


async def test_storage_that_fails_is_told_as_loading_so_that_clients_try_again() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        gateway.engine.fail_next("commit")
        assert 14 == (await client.ask(ANY_PRODUCER, 4)).error_code
        assert 0 == (await client.ask(ANY_PRODUCER, 4)).error_code
