"""GetTelemetrySubscriptions, as Apache Kafka 4.3 answers with a plug-in that receives metrics."""

from kledger.gateway.wire.messages.k18_api_versions import ApiVersionsRequest
from kledger.gateway.wire.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kledger.gateway.wire.primitives import ZERO_UUID
from tests.gateway.running import RunningGateway, running_gateway, until
from tests.gateway.telemetry_words import ID

THROTTLED = 89
ASK = GetTelemetrySubscriptionsRequest(client_instance_id=ID)


async def wish(gateway: RunningGateway, **settings: str) -> None:
    changes = {key.replace("_", "."): value for key, value in settings.items()}
    await gateway.services.client_metrics.alter(
        "wish", dict(changes), replace=True, validate_only=False
    )


async def test_nothing_is_wanted_without_a_subscription() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(ASK, 0)
        assert answer == GetTelemetrySubscriptionsResponse(
            client_instance_id=ID,
            subscription_id=-1530438690,
            accepted_compression_types=[4, 3, 1, 2],
            push_interval_ms=300_000,
            telemetry_max_bytes=1 << 20,
            delta_temporality=True,
        )


async def test_requested_metrics_are_returned() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        gateway.services.config.telemetry_max_bytes = 5_000
        await wish(gateway, metrics="b.,a.", interval_ms="100")
        answer = await client.ask(ASK, 0)
        assert (["a.", "b."], 100) == (answer.requested_metrics, answer.push_interval_ms)
        assert 5_000 == answer.telemetry_max_bytes
        assert THROTTLED == (await client.ask(ASK, 0)).error_code
        gateway.clock.advance(100)
        assert 0 == (await client.ask(ASK, 0)).error_code


async def test_an_id_is_assigned_and_a_refusal_reveals_nothing() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        given = (await client.ask(GetTelemetrySubscriptionsRequest(), 0)).client_instance_id
        assert ZERO_UUID != given
        again = GetTelemetrySubscriptionsRequest(client_instance_id=given)
        refused = await client.ask(again, 0)
        assert refused == GetTelemetrySubscriptionsResponse(error_code=THROTTLED)


async def test_clients_are_distinguished_by_attributes_of_their_connection() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await wish(
            gateway,
            metrics="*",
            match="client_software_name=lib,client_id=test,client_source_address=127[.]0[.]0[.]1",
        )
        assert [] == (await client.ask(ASK, 0)).requested_metrics
        hello = ApiVersionsRequest(client_software_name="lib", client_software_version="1")
        await client.ask(hello, 3)
        other = GetTelemetrySubscriptionsRequest()
        assert ["*"] == (await client.ask(other, 0)).requested_metrics


async def test_a_client_is_forgotten_with_its_connection() -> None:
    async with running_gateway() as gateway:
        async with gateway.client() as client:
            assert 0 == (await client.ask(ASK, 0)).error_code
            assert THROTTLED == (await client.ask(ASK, 0)).error_code
        await until(lambda: not gateway.server.connections)
        async with gateway.client() as client:
            assert 0 == (await client.ask(ASK, 0)).error_code
