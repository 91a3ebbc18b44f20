"""pytest plugin: a Kafka server for a test, started as a process of its own.

    def test_orders(kledger_server):
        producer = KafkaProducer(bootstrap_servers=kledger_server)

    async def test_bills(kledger_native_server):
        async with kledger.connect(kledger_native_server) as client:
            ...

Rule: a test gets a fresh server with nothing in it, on a free port, which is gone afterwards. The
process is started so that no folder of the test's project can hide kledger's packages.
Must not know: asyncio; and importing it must cost nothing, because every pytest run does.
"""

from collections.abc import Iterator

import pytest


@pytest.fixture
def kledger_server() -> Iterator[str]:
    """Yield the address, HOST:PORT, of a server that keeps everything in memory."""
    from kledger.process import ServerProcess

    with ServerProcess("--memory") as server:
        yield server.kafka_address


@pytest.fixture
def kledger_native_server() -> Iterator[str]:
    """Yield the address, kledger://HOST:PORT, of such a server for native clients."""
    from kledger.process import ServerProcess

    with ServerProcess("--memory", native="127.0.0.1:0") as server:
        yield f"kledger://{server.native_address}"
