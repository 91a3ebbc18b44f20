"""A client of an empty server, by every transport; a topic of one partition and one of three."""

from collections.abc import AsyncIterator

import pytest

import kledger
from kledger.ledger.testing import ManualClock
from tests.native.contract.transports import TRANSPORTS
from tests.native.contract.words import SOON_MS
from tests.native.rpc.connected_pair import PatientClock


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a topic with one partition, two workers show little that three partitions do not show."""
    for each in items:
        params = (
            each.callspec.params
            if isinstance(each, pytest.Function) and hasattr(each, "callspec")
            else {}
        )
        if params.get("client") == "workers" and params.get("topic") == 1:
            each.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadlines of a connection never expire, however slow the machine is."""
    monkeypatch.setattr("kledger.native.rpc.client.SystemClock", PatientClock)
    monkeypatch.setattr("kledger.native.rpc.connection.HELLO_TIMEOUT_MS", SOON_MS)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of clients that are created after it; only the test advances it."""
    clock = ManualClock()
    monkeypatch.setattr("kledger.native.client.client.SystemClock", lambda: clock)
    return clock


@pytest.fixture(params=list(TRANSPORTS))
async def client(request: pytest.FixtureRequest) -> AsyncIterator[kledger.Client]:
    async with TRANSPORTS[request.param]() as client:
        yield client


@pytest.fixture(params=[1, 3], ids=["1-partition", "3-partitions"])
async def topic(request: pytest.FixtureRequest, client: kledger.Client) -> str:
    await client.create_topic("orders", partitions=request.param)
    return "orders"
