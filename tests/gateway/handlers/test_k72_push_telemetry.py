"""PushTelemetry."""

import pytest

from kledger.batches.compression import Codec, compress
from kledger.gateway.wire.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from kledger.gateway.wire.messages.k72_push_telemetry import PushTelemetryRequest
from kledger.gateway.wire.primitives import ZERO_UUID
from tests.gateway.running import running_gateway
from tests.gateway.telemetry_words import ID, metrics_data

DATA = metrics_data(org_apache_kafka_x=1.5)


async def test_what_is_pushed_is_kept() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=ID), 0)
        request = PushTelemetryRequest(
            client_instance_id=ID,
            subscription_id=answer.subscription_id,
            compression_type=Codec.LZ4,
            metrics=compress(Codec.LZ4, DATA),
        )
        assert 0 == (await client.ask(request, 0)).error_code
        assert 89 == (await client.ask(request, 0)).error_code
        request.terminating = True
        assert 0 == (await client.ask(request, 0)).error_code
        assert 42 == (await client.ask(request, 0)).error_code
        seen = gateway.services.telemetry.client(ID)
        assert seen is not None
        assert seen.push is not None
        assert (DATA, True) == (seen.push.data, seen.push.is_last)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"client_instance_id": ZERO_UUID}, 42),
        ({"subscription_id": 5}, 117),
        ({"compression_type": 5}, 76),
        ({"metrics": b"x" * 1_001}, 118),
        ({"metrics": b"garbage"}, 87),
        ({"metrics": b""}, 0),
    ],
)
async def test_invalid_pushes_have_their_errors(changes: dict[str, object], error: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        gateway.services.config.telemetry_max_bytes = 1_000
        answer = await client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=ID), 0)
        request = PushTelemetryRequest(
            client_instance_id=ID, subscription_id=answer.subscription_id, metrics=DATA
        )
        for name, value in changes.items():
            setattr(request, name, value)
        assert error == (await client.ask(request, 0)).error_code
