"""ApiVersions; rows of docs/SCENARIOS.md."""

import pytest

from kledger.gateway.handlers.k18_api_versions import TELEMETRY
from kledger.gateway.peer import Peer
from kledger.gateway.served_apis import HANDLERS
from kledger.gateway.wire.codec import decode
from kledger.gateway.wire.header import encode_request_header
from kledger.gateway.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from kledger.gateway.wire.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from tests.gateway.running import running_gateway

REQUEST = ApiVersionsRequest(client_software_name="test-1.0", client_software_version="1.0")


def software(peer: Peer) -> tuple[str, str]:
    return peer.software_name, peer.software_version


async def test_row_1_unknown_version_is_answered_in_v0_and_the_next_one_is_served() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        client.send_frame(encode_request_header(18, 5, 42, "test") + b"any bytes \xff\xff")
        frame = await client.receive_frame()
        assert 42 == int.from_bytes(frame[:4], "big")
        refused = decode(ApiVersionsResponse, 0, frame, 4)
        assert 35 == refused.error_code
        assert [(18, 0, 4)] == [
            (one.api_key, one.min_version, one.max_version) for one in refused.api_keys
        ]
        assert 4 + 2 + 4 + 6 == len(frame), "there is more than version 0 has"
        assert 0 == (await client.ask(REQUEST, 4)).error_code


@pytest.mark.parametrize("version", range(5))
async def test_row_2_header_has_no_tags_and_the_list_is_that_of_the_handlers(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        response = await client.ask(REQUEST, version)
        assert 0 == response.error_code
        listed = [one for one in HANDLERS if one.key not in TELEMETRY]
        assert [(one.key, one.advertised_min, one.max_version) for one in listed] == [
            (one.api_key, one.min_version, one.max_version) for one in response.api_keys
        ]


async def test_telemetry_is_advertised_with_a_subscription_and_always_served() -> None:
    """A client of librdkafka that saw it asked for an id, and logged a line about it."""
    async with running_gateway() as gateway, gateway.client() as client:
        metrics, advertised = gateway.services.client_metrics, []
        for interval in (None, "1000", None):
            await metrics.alter("s", {"interval.ms": interval}, replace=False, validate_only=False)
            keys = {one.api_key for one in (await client.ask(REQUEST, 4)).api_keys}
            advertised.append(keys & set(TELEMETRY))
        assert [set(), set(TELEMETRY), set()] == advertised
        assert 0 == (await client.ask(GetTelemetrySubscriptionsRequest(), 0)).error_code


@pytest.mark.parametrize("version", [3, 4])
async def test_features_are_those_of_kafka_that_hold_here(version: int) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        response = await client.ask(REQUEST, version)
        levels = {one.name: one.max_version_level for one in response.finalized_features}
        assert {
            "metadata.version": 30,
            "eligible.leader.replicas.version": 1,
            "group.version": 1,
            "transaction.version": 2,
        } == levels
        supported = {one.name: one.min_version for one in response.supported_features}
        assert supported.keys() == (levels.keys() if version == 4 else {"metadata.version"})
        assert 7 == supported["metadata.version"]


@pytest.mark.parametrize(
    ("name", "version"), [("bad name!", "1"), ("", "1"), ("good", ""), ("-bad", "1"), ("x", "1\n")]
)
async def test_row_12_bad_software_name_is_refused_and_the_connection_stays(
    name: str, version: str
) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        bad = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        assert 42 == (await client.ask(bad, 3)).error_code
        (connection,) = gateway.server.connections
        assert ("unknown", "unknown") == software(connection.peer)
        assert 0 == (await client.ask(REQUEST, 3)).error_code


async def test_what_a_client_calls_itself_is_known_of_its_connection() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await client.ask(ApiVersionsRequest(), 2)
        (connection,) = gateway.server.connections
        assert ("unknown", "unknown") == software(connection.peer)
        await client.ask(REQUEST, 4)
        assert ("test-1.0", "1.0") == software(connection.peer)
        assert gateway.port != connection.peer.port > 0
