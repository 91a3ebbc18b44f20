"""A client's side of a fetch session."""

from typing import Any

from kledger.gateway.wire.messages.k01_fetch import FetchRequest, FetchResponse
from tests.gateway.running import RunningGateway, batch, fetch, produce
from tests.gateway.wire_client import WireClient

BY_NAME = 12
BY_ID = 13


class Session:
    """A client's side of one session."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        self.session_id = 0
        self.epoch = 0

    def request(self, offsets: dict[int, int] | None = None, **changes: Any) -> FetchRequest:
        request = fetch(offsets or {}, **changes)
        if not offsets:
            request.topics = []
        request.session_id, request.session_epoch = self.session_id, self.epoch
        return request

    def took(self, response: FetchResponse) -> dict[int, tuple[int, int, bytes]]:
        """Note what was answered: partition to (error, high watermark, records)."""
        assert 0 == response.error_code
        self.session_id, self.epoch = response.session_id, self.epoch + 1
        return {
            one.partition_index: (one.error_code, one.high_watermark, bytes(one.records or b""))
            for topic in response.responses
            for one in topic.partitions
        }

    async def fetch(
        self, offsets: dict[int, int] | None = None, **changes: Any
    ) -> dict[int, tuple[int, int, bytes]]:
        return self.took(await self.client.ask(self.request(offsets, **changes), BY_NAME))

    async def fetch_later(
        self, gateway: RunningGateway, offsets: dict[int, int] | None = None
    ) -> None:
        """Send a fetch that waits."""
        self.client.send(self.request(offsets, max_wait_ms=60_000), BY_NAME)
        await self.client.writer.drain()
        await gateway.parked()

    async def answer(self) -> dict[int, tuple[int, int, bytes]]:
        return self.took(await self.client.receive())


async def write(client: WireClient, value: bytes, partition: int = 0) -> None:
    response = await client.ask(produce({partition: batch(value)}), 9)
    assert 0 == response.responses[0].partition_responses[0].error_code
