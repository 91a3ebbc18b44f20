"""pytest plugin: a Kafka server for a test, started as a process of its own.

    def test_orders(kledger_server):
        producer = KafkaProducer(bootstrap_servers=kledger_server)

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
