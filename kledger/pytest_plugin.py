"""pytest plugin: a Kafka server for a test.

    def test_orders(kledger_server):
        producer = KafkaProducer(bootstrap_servers=kledger_server)

    def test_failed_sync(kledger_broker):
        producer = KafkaProducer(bootstrap_servers=kledger_broker.kafka_address)
        kledger_broker.fail_next("sync")

    async def test_bills(kledger_native_server):
        async with kledger.connect(kledger_native_server) as client:
            ...

Rule: a test gets an empty server on a free port, which is stopped after the test. It is a separate
process, started so that no folder of the test's project can hide kledger's packages; only
`kledger_broker` is a thread in the test's process.
Must not know: asyncio. Importing it must cost nothing, because every pytest run does.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kledger.testing import FaultyServer


@pytest.fixture
def kledger_server() -> Iterator[str]:
    """Yield the address, HOST:PORT, of a server that keeps everything in memory."""
    from kledger.process import ServerProcess

    with ServerProcess("--memory") as server:
        yield server.kafka_address


@pytest.fixture
def kledger_native_server() -> Iterator[str]:
    """Yield the address, kledger://HOST:PORT, of a server in memory for native clients."""
    from kledger.process import ServerProcess

    with ServerProcess("--memory", native="127.0.0.1:0") as server:
        yield f"kledger://{server.native_address}"


@pytest.fixture
def kledger_broker() -> "Iterator[FaultyServer]":
    """Yield a server in this process, whose requests and storage fail on demand."""
    from kledger.testing import FaultyServer

    with FaultyServer() as server:
        yield server
