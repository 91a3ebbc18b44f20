"""The Kafka clients of a server, for its native clients.

Rule: translates one façade's values into the other's; keeps nothing.
Must not know: how Kafka clients push, how native clients send requests.
"""

from kledger.gateway.telemetry.client_telemetry import ClientSnapshot, ClientTelemetry
from kledger.gateway.wire.uuid_text import uuid_from_text, uuid_text
from kledger.native.broker import MetricsClient, PushedClientMetrics
from kledger.setting_values import joined_address


class GatewayClients:
    """`native.server.service.KafkaClients`, of a gateway."""

    def __init__(self, telemetry: ClientTelemetry) -> None:
        self._telemetry = telemetry

    def metrics_clients(self) -> list[MetricsClient]:
        """Return the clients that can push metrics, in the order of their last push."""
        return [_described(each) for each in self._telemetry.clients()]

    def client_metrics(self, instance_id: str) -> PushedClientMetrics | None:
        """Return the last push of a client; None if there is no client of that id."""
        try:
            seen = self._telemetry.client(uuid_from_text(instance_id))
        except ValueError:
            return None
        if seen is None:
            return None
        return PushedClientMetrics(_described(seen), b"" if seen.push is None else seen.push.data)


def _described(seen: ClientSnapshot) -> MetricsClient:
    client = seen.client
    return MetricsClient(
        instance_id=uuid_text(seen.instance_id),
        client_id=client.client_id,
        software=f"{client.software_name} {client.software_version}",
        address=joined_address(client.address, client.port),
        subscriptions=seen.names,
        pushed_at_ms=None if seen.push is None else seen.push.pushed_at_ms,
    )
