"""What connections share."""

from kledger.gateway.net.connection_state import ResponseSlot
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest
from tests.gateway.running import batch, fetch, produce, running_gateway, until


class Finisher(ResponseSlot):
    """A slot that records when it was finished."""

    __slots__ = ("log",)

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    def finish(self) -> None:
        self.log.append("finished")


async def test_slots_finish_once_at_the_end_of_the_tick() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        await client.ask(MetadataRequest(topics=[]), 9)
        (connection,) = gateway.server.connections
        log: list[str] = []
        connection.finish_at_tick_end(Finisher(log))
        assert [] == log
        await until(lambda: bool(log))
        await client.ask(MetadataRequest(topics=[]), 9)
        assert ["finished"] == log


async def test_gauges_follow_connections_and_bytes() -> None:
    async with running_gateway() as gateway:
        await gateway.create_topic()
        metrics = gateway.services.metrics
        async with gateway.client() as client:
            client.send(fetch({0: 0}, max_wait_ms=60_000), 12)
            await gateway.parked()
            shown = metrics.snapshot()
            assert (1, 1) == (shown["connections"], shown["connections_accepted"])
            assert shown["request_bytes_in_flight"] > 0
            assert (1, 1) == (shown['requests{api="fetch"}'], shown["parked_fetches"])
            assert 0 == shown['request_ms{api="fetch"}']
            gateway.clock.advance(60_000)
            await client.receive()
            shown = metrics.snapshot()
            assert (60_000, 0) == (shown['request_ms{api="fetch"}'], shown["parked_fetches"])
        await until(lambda: gateway.server.connection_count == 0)
        shown = metrics.snapshot()
        assert (0, 0) == (shown["connections"], shown["request_bytes_in_flight"])


async def test_metrics_count_every_byte_of_requests_and_responses() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        frame = client.frame(MetadataRequest(topics=[]), 9)
        client.send_frame(frame)
        answer = await client.receive_frame()
        shown = gateway.services.metrics.snapshot()
        size_bytes = 4
        assert size_bytes + len(frame) == shown["received_bytes"]
        assert size_bytes + len(answer) == shown["sent_bytes"]


async def test_saturated_store_holds_produce_back_and_loses_nothing() -> None:
    async with running_gateway(queue_count_max=5) as gateway, gateway.client() as client:
        topic = await gateway.create_topic()
        hold = gateway.engine.hold_next("commit")
        for _ in range(400):
            client.send(produce({0: batch(b"x" * 2_000)}), 9)
        await hold.reached()
        await until(lambda: gateway.services.store.is_saturated)
        hold.release()
        for number in range(400):
            response = await client.receive()
            assert number == response.responses[0].partition_responses[0].base_offset
        assert 400 == (await topic.open_partition(0)).high_watermark


async def test_connections_of_one_host_are_limited_and_the_limit_can_be_altered() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        settings = gateway.services.broker_settings
        for limit, is_let_in in (("1", False), ("2", True), (None, True)):
            changes = {"max.connections.per.ip": limit}
            await settings.alter("1", changes, replace=False, validate_only=False)
            async with gateway.client() as other:
                if is_let_in:
                    assert await other.ask(MetadataRequest(topics=[]), 9)
                else:
                    assert await other.is_closed_by_server()
            await until(lambda: gateway.server.connection_count == 1)
        assert await client.ask(MetadataRequest(topics=[]), 9)
