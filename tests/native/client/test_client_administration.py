"""The administration of a client: the calls that reach the broker."""

import pytest

from kledger.ledger import Position
from kledger.native.broker import RecordPosition
from kledger.native.client.client import Client
from kledger.native.errors import InvalidArgument
from kledger.native.message_id import MessageId
from tests.native.client.test_client import Server, opened


async def asked(client: Client, server: Server, call: object) -> tuple[object, ...]:
    """Return a call as the broker recorded it."""
    await call  # type: ignore[misc]
    return server.broker.calls[-1]


async def test_arguments_in_the_words_of_the_seam() -> None:
    server = Server()
    async with opened(server) as client:
        id_ = MessageId(5, 120, 3, 2)
        record_position = RecordPosition(Position(5, 120), 3)
        for call, expected in (
            (client.create_topic("t"), ("create_topic", "t", 1, {})),
            (client.delete_topic("t"), ("delete_topic", "t")),
            (client.topic_stats("t"), ("topic_stats", "t")),
            (client.subscriptions("t"), ("subscriptions", "t")),
            (client.create_subscription("t", "s"), ("create_subscription", "t", "s", "latest")),
            (
                client.delete_subscription("t", "s", force=True),
                ("delete_subscription", "t", "s", True),
            ),
            (
                client.reset_subscription("t", "s", id_, inclusive=False),
                ("reset_subscription", "t", "s", record_position, 2, False),
            ),
            (
                client.reset_subscription("t", "s", 5),
                ("reset_subscription", "t", "s", 5, None, True),
            ),
            (client.create_partitions("t", 3), ("create_partitions", "t", 3)),
            (client.position_of("t", 1, 7), ("record_at", "t", 1, 7)),
            (
                client.offset_of(MessageId(4, 2, 1, 3), "t"),
                ("offset_of", "t", 3, RecordPosition(Position(4, 2), 1)),
            ),
            (client.skip_messages("t", "s", 3), ("skip_messages", "t", "s", 3)),
            (client.clear_backlog("t", "s"), ("clear_backlog", "t", "s")),
            (client.create_namespace("t/n"), ("create_namespace", "t/n")),
            (client.delete_namespace("t/n"), ("delete_namespace", "t/n")),
            (client.policies("t/n"), ("policies", "t/n")),
            (
                client.set_policies("t/n", {"a": "1", "b": None, "c": 2}),
                ("set_policies", "t/n", {"a": "1", "c": "2"}, ["b"]),
            ),
            (client.metrics_clients(), ("metrics_clients",)),
            (client.client_metrics("id"), ("client_metrics", "id")),
        ):
            assert expected == await asked(client, server, call)
        ends = await client.terminate("t")
        assert [MessageId(3, 4, 5, 0), MessageId(-1, -1, -1, 1)] == ends
        assert [70, None] == [each.offset for each in ends]


async def test_bad_arguments_do_not_reach_the_server() -> None:
    server = Server()
    async with opened(server) as client:
        call_count = len(server.broker.calls)
        for call in (
            client.create_topic(""), client.create_topic("t", partitions=0),
            client.subscription_stats("t", ""), client.skip_messages("t", "s", -1),
            client.reset_subscription("t", "s", "middle"), client.peek_messages("", "s", 1),
            client.create_partitions("t", 0), client.create_partitions("", 2),
            client.position_of("t", -1, 0), client.position_of("t", 0, -1),
            client.offset_of(MessageId(1 << 63, 0), "t"),
            client.offset_of(7, "t"),  # type: ignore[arg-type]
            client.client_metrics(""), client.skip_messages("t", "s", 1 << 63),
            client.reset_subscription("t", "s", MessageId(1 << 63, 0)),
            client.create_topic("t", config={"retention.ms": 5}),  # type: ignore[dict-item]
            client.offload(""), client.offload_status(""),
            client.offload("t", until=7),  # type: ignore[arg-type]
            client.offload("t", until=MessageId(1 << 63, 0)),
            client.create_namespace(""), client.delete_namespace(""), client.policies(""),
            client.set_policies("", {}), client.set_policies("t/n", "a"),  # type: ignore[arg-type]
            client.set_policies("t/n", {"a": 1.5}),  # type: ignore[dict-item]
            client.set_policies("t/n", {1: None}),  # type: ignore[dict-item]
        ):  # fmt: skip
            with pytest.raises(InvalidArgument):
                await call
        assert call_count == len(server.broker.calls)
