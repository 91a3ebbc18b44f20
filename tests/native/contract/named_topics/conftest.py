"""A named topic of an empty server, by every transport."""

from collections.abc import AsyncIterator

import pytest

import kledger
from kledger.runtime.manual_clock import ManualClock
from tests.native.contract.named_topics.words import SETTINGS, TIMED, TIMEOUT_MS
from tests.native.contract.transports import TRANSPORTS


@pytest.fixture(params=["embedded", "remote"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[kledger.Client]:
    """A client of a server that allows the functions of these tests."""
    async with TRANSPORTS[request.param](SETTINGS) as client:
        yield client


@pytest.fixture
async def topic(client: kledger.Client) -> kledger.NamedTopic:
    """A topic of three channels that does not retain."""
    return await client.named_topic("orders", channel_count=3)


@pytest.fixture
async def retaining(client: kledger.Client) -> kledger.NamedTopic:
    """A topic of three channels that retains."""
    return await client.named_topic("states", channel_count=3, retain_values=True)


@pytest.fixture(params=list(TIMED))
async def timed_client(
    request: pytest.FixtureRequest, clock: ManualClock
) -> AsyncIterator[kledger.Client]:
    """A client and a server whose time only the test advances."""
    async with TIMED[request.param](clock) as client:
        yield client


@pytest.fixture
async def timed(timed_client: kledger.Client) -> kledger.NamedTopic:
    """A topic of four channels, whose subscribers time out."""
    return await timed_client.named_topic(
        "timed", channel_count=4, subscriber_timeout_ms=TIMEOUT_MS
    )
