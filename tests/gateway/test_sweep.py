"""Every API in every version: an answer that can be read, or a closed connection, and no fault.

Rows 129 and 130 of docs/SCENARIOS.md.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kledger.gateway.config import GatewayConfig
from kledger.gateway.served_apis import HANDLERS, HandlerSpec
from kledger.gateway.wire.messages.k00_produce import ProduceRequest
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest
from kledger.gateway.wire.schema import ApiMessage
from tests.gateway.running import RunningGateway, running_gateway
from tests.gateway.wire.random_messages import message_of, settle
from tests.gateway.wire_client import WireClient

STEP_MS = 10_000


class Faults(logging.Handler):
    """Collects what the gateway logs about faults of its own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(logging.Formatter().format(record))


@contextmanager
def no_faults() -> Iterator[None]:
    """Fail if the gateway finds a fault of its own meanwhile."""
    faults = Faults()
    logging.getLogger("gateway").addHandler(faults)
    try:
        yield
    finally:
        logging.getLogger("gateway").removeHandler(faults)
    assert [] == faults.texts


def request_class(spec: HandlerSpec) -> type[ApiMessage]:
    found: type[ApiMessage] = import_module(f"kledger.gateway.wire.messages.{spec.module}").REQUEST
    return found


async def outcome(gateway: RunningGateway, client: WireClient) -> ApiMessage | None:
    """Return the response, or None if the connection was closed; let time pass meanwhile."""
    waiting = asyncio.ensure_future(client.receive())
    while not waiting.done():
        await asyncio.sleep(0)
        gateway.clock.advance(STEP_MS)
    try:
        response: ApiMessage = await waiting
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return response


@pytest.mark.parametrize("spec", HANDLERS, ids=lambda spec: spec.module)
async def test_row_129_every_version_answers_a_request_of_defaults(spec: HandlerSpec) -> None:
    request = request_class(spec)()
    if isinstance(request, ProduceRequest):
        request.acks = 1
    config = GatewayConfig(connections_max_idle_ms=0)
    with no_faults():
        async with running_gateway(config) as gateway, gateway.client() as client:
            for version in range(spec.min_version, spec.max_version + 1):
                client.send(request, version)
                response = await outcome(gateway, client)
                assert response is not None, f"version {version} was closed"
                assert 35 != getattr(response, "error_code", 0)


async def sweep(requests: list[tuple[HandlerSpec, ApiMessage]], cut: int | None) -> None:
    """Send each request in each of its versions, whole or cut off; the server keeps serving."""
    config = GatewayConfig(connections_max_idle_ms=0)
    with no_faults():
        async with running_gateway(config) as gateway, gateway.client() as bystander:
            for spec, request in requests:
                for version in {spec.min_version, spec.max_version}:
                    async with gateway.client() as client:
                        frame = client.frame(settle(request, version), version)
                        client.send_frame(frame if cut is None else frame[: max(cut, 10)])
                        client.expect(spec.key, version)
                        await outcome(gateway, client)
            assert await bystander.ask(MetadataRequest(topics=[]), 12)


@settings(max_examples=4)
@given(data=st.data())
def test_row_129_random_requests_are_answered_or_closed(data: st.DataObject) -> None:
    requests = []
    for spec in HANDLERS:
        request = data.draw(message_of(request_class(spec)))
        if isinstance(request, ProduceRequest):
            request.acks = 1
        requests.append((spec, request))
    asyncio.run(sweep(requests, None))


@settings(max_examples=3)
@given(data=st.data(), cut=st.integers(10, 60))
def test_row_130_requests_that_are_cut_off_are_answered_or_closed(
    data: st.DataObject, cut: int
) -> None:
    requests = [(spec, data.draw(message_of(request_class(spec)))) for spec in HANDLERS]
    asyncio.run(sweep(requests, cut))
