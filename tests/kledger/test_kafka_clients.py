"""A gateway's clients in the words of the native façade."""

from kledger.gateway.telemetry.telemetry_state import TelemetryClient
from kledger.gateway.wire.uuid_text import uuid_text
from kledger.kafka_clients import GatewayClients
from kledger.native.broker import MetricsClient, PushedClientMetrics
from tests.gateway.running import START_MS, running_gateway
from tests.gateway.telemetry_words import ID, metrics_data, numbered

DATA = metrics_data(org_apache_kafka_x=1.5)


CLIENT = TelemetryClient(
    client_id=None, software_name="lib", software_version="1.0", address="::1", port=4000
)


async def test_clients_have_their_last_push() -> None:
    async with running_gateway() as gateway:
        telemetry = gateway.services.telemetry
        clients = GatewayClients(telemetry)
        assert [] == clients.metrics_clients()
        await gateway.services.client_metrics.alter(
            "all", {"metrics": "*"}, replace=True, validate_only=False
        )
        _, instance = telemetry.subscribe(CLIENT, 1, ID)
        telemetry.subscribe(CLIENT, 1, numbered(1))
        expected = MetricsClient(
            instance_id=uuid_text(ID),
            client_id=None,
            software="lib 1.0",
            address="[::1]:4000",
            subscriptions=("all",),
            pushed_at_ms=None,
        )
        assert expected == clients.metrics_clients()[0]
        assert PushedClientMetrics(expected, b"") == clients.client_metrics(uuid_text(ID))
        await telemetry.push(
            CLIENT,
            1,
            ID,
            subscription_id=instance.requested.subscription_id,
            is_terminating=False,
            codec=0,
            data=DATA,
        )
        first, last = clients.metrics_clients()
        assert (uuid_text(numbered(1)), None) == (first.instance_id, first.pushed_at_ms)
        assert START_MS == last.pushed_at_ms
        assert PushedClientMetrics(last, DATA) == clients.client_metrics(uuid_text(ID))


async def test_unknown_client_has_no_metrics() -> None:
    async with running_gateway() as gateway:
        clients = GatewayClients(gateway.services.telemetry)
        assert None is clients.client_metrics(uuid_text(ID))
        assert None is clients.client_metrics("no id")
