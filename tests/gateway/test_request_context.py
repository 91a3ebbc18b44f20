"""What a handler knows of the client of a request."""

from kledger.gateway.peer import Peer
from kledger.gateway.request_context import RequestContext
from kledger.gateway.telemetry.telemetry_state import TelemetryClient
from tests.gateway.running import running_gateway


async def test_telemetry_client_is_the_client_of_the_request() -> None:
    async with running_gateway() as gateway:
        context = RequestContext(
            gateway.services,
            0,
            "app",
            1,
            Peer("10.0.0.1", 4000, software_name="lib", software_version="1.0"),
        )
    expected = TelemetryClient(
        client_id="app", software_name="lib", software_version="1.0", address="10.0.0.1", port=4000
    )
    assert expected == context.telemetry_client
