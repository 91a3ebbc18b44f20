"""Rights of native clients: every call asks, listings are filtered, links end with their rights."""

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from kledger.named_topics.model import (
    CommitRequest,
    NamedTopicOptions,
    SeekRequest,
    SubscriberJoin,
)
from kledger.native.broker import Broker, ConsumerRequest
from kledger.native.errors import NotAllowed, TopicNotFound
from kledger.native.server.authorized_broker import AuthorizedBroker
from kledger.native.server.client_rights import ClientRights
from kledger.security.acl_state import (
    ANY_HOST,
    CLUSTER_NAME,
    AclFilter,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kledger.security.audit import AuditLog
from kledger.security.authorizer import Authorizer
from kledger.security.principal import Principal
from kledger.subscriptions.model import SubscriptionType
from tests.batches.words import batch
from tests.native.serving import Link, Serving, serving

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
CREATE, DELETE, ALTER = Operation.CREATE, Operation.DELETE, Operation.ALTER
NO_OPTIONS = NamedTopicOptions()


@dataclass
class Guarded:
    """A server with rules, and the broker of the user ann."""

    serving: Serving
    authorizer: Authorizer
    broker: AuthorizedBroker

    async def allow(self, operation: Operation, kind: ResourceType, name: str) -> None:
        pattern = ResourcePattern(kind, PatternType.LITERAL, name)
        rule = AclRule(pattern, "User:ann", ANY_HOST, operation, Permission.ALLOW)
        await self.authorizer.create([rule])

    async def take(self, kind: ResourceType, name: str) -> None:
        await self.authorizer.delete([AclFilter(resource_type=kind, name=name)])


@asynccontextmanager
async def guarded() -> AsyncIterator[Guarded]:
    async with serving() as found:
        authorizer = Authorizer(found.topics.store, found.topics.clock)
        rights = ClientRights(
            authorizer, AuditLog(found.topics.clock), Principal("ann"), "127.0.0.1"
        )
        yield Guarded(found, authorizer, AuthorizedBroker(found.service, rights))


def request(subscription: str = "s", **more: Any) -> ConsumerRequest:
    return ConsumerRequest(
        topic="orders",
        partition=0,
        subscription=subscription,
        type=SubscriptionType.EXCLUSIVE,
        start="earliest",
        **more,
    )


def open_consumer(broker: Broker, subscription: str = "s", **more: Any) -> Any:
    link = Link()
    return broker.open_consumer(
        request(subscription, **more), deliver=link.deliver, on_ended=link.on_ended
    )


CALLS: dict[str, tuple[dict[str, Any], list[tuple[Operation, ResourceType, str]]]] = {
    "lookup": ({"topic": "orders", "create": False}, [(DESCRIBE, TOPIC, "orders")]),
    "create_topic": (
        {"name": "new", "partitions": 1, "config": {}},
        [(CREATE, TOPIC, "new")],
    ),
    "delete_topic": ({"name": "orders"}, [(DELETE, TOPIC, "orders")]),
    "topic_stats": ({"name": "orders"}, [(DESCRIBE, TOPIC, "orders")]),
    "create_partitions": ({"name": "orders", "count": 2}, [(ALTER, TOPIC, "orders")]),
    "terminate": ({"name": "orders"}, [(ALTER, TOPIC, "orders")]),
    "start_compaction": ({"topic": "orders"}, [(ALTER, TOPIC, "orders")]),
    "compaction_status": ({"topic": "orders"}, [(DESCRIBE, TOPIC, "orders")]),
    "offload_status": ({"topic": "orders"}, [(DESCRIBE, TOPIC, "orders")]),
    "last_record": ({"topic": "orders", "partition": 0}, [(DESCRIBE, TOPIC, "orders")]),
    "committed_ends": ({"topic": "orders"}, [(DESCRIBE, TOPIC, "orders")]),
    "record_at": (
        {"topic": "orders", "partition": 0, "offset": 0},
        [(DESCRIBE, TOPIC, "orders")],
    ),
    "namespaces": ({}, [(DESCRIBE, CLUSTER, CLUSTER_NAME)]),
    "create_namespace": ({"name": "a/b"}, [(CREATE, CLUSTER, CLUSTER_NAME)]),
    "policies": (
        {"name": "public/default"},
        [(Operation.DESCRIBE_CONFIGS, CLUSTER, CLUSTER_NAME)],
    ),
    "set_policies": (
        {"name": "public/default", "policies": {}, "removed": []},
        [(Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_NAME)],
    ),
    "subscriptions": ({"topic": "orders"}, [(DESCRIBE, TOPIC, "orders")]),
    "create_subscription": (
        {"topic": "orders", "name": "s", "start": "earliest"},
        [(READ, TOPIC, "orders"), (READ, GROUP, "s")],
    ),
    "delete_subscription": (
        {"topic": "orders", "name": "s", "force": False},
        [(READ, TOPIC, "orders"), (DELETE, GROUP, "s")],
    ),
    "subscription_stats": (
        {"topic": "orders", "name": "s"},
        [(DESCRIBE, TOPIC, "orders"), (DESCRIBE, GROUP, "s")],
    ),
    "reset_subscription": (
        {
            "topic": "orders", "name": "s", "target": "earliest", "partition": None,
            "inclusive": True,
        },
        [(READ, TOPIC, "orders"), (READ, GROUP, "s")],
    ),
    "skip_messages": (
        {"topic": "orders", "name": "s", "count": 1},
        [(READ, TOPIC, "orders"), (READ, GROUP, "s")],
    ),
    "clear_backlog": (
        {"topic": "orders", "name": "s"},
        [(READ, TOPIC, "orders"), (READ, GROUP, "s")],
    ),
    "peek": (
        {"topic": "orders", "name": "s", "count": 1},
        [(READ, TOPIC, "orders"), (READ, GROUP, "s")],
    ),
    "metrics_clients": ({}, [(DESCRIBE, CLUSTER, CLUSTER_NAME)]),
    "client_metrics": ({"instance_id": "x"}, [(DESCRIBE, CLUSTER, CLUSTER_NAME)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_needs_each_of_its_rights(name: str) -> None:
    arguments, rights = CALLS[name]
    async with guarded() as found:
        await found.serving.log()
        await found.serving.append("a")
        if name != "create_subscription":
            await found.serving.service.create_subscription("orders", "s", "earliest")
        for right in rights:
            with pytest.raises(NotAllowed, match="User:ann is not allowed"):
                await getattr(found.broker, name)(**arguments)
            await found.allow(*right)
        await getattr(found.broker, name)(**arguments)


def test_every_call_of_a_broker_is_guarded() -> None:
    """A new method of the broker must not reach the server without asking for rights."""
    for name, _ in inspect.getmembers(Broker, inspect.isfunction):
        if not name.startswith("_"):
            assert name in vars(AuthorizedBroker), name
            ours = inspect.signature(getattr(AuthorizedBroker, name))
            assert inspect.signature(getattr(Broker, name)).parameters.keys() == (
                ours.parameters.keys()
            )


async def test_creating_a_topic_by_its_first_use_needs_a_right() -> None:
    async with guarded() as found:
        await found.allow(DESCRIBE, TOPIC, "new")
        with pytest.raises(NotAllowed):
            await found.broker.lookup("new", create=True)
        with pytest.raises(TopicNotFound):
            await found.broker.lookup("new", create=False)
        await found.allow(CREATE, CLUSTER, CLUSTER_NAME)
        assert "new" == (await found.broker.lookup("new", create=True)).name


async def test_a_refusal_does_not_say_whether_the_topic_exists() -> None:
    async with guarded() as found:
        await found.serving.log()
        texts = []
        for name in ("orders", "nowhere"):
            with pytest.raises(NotAllowed) as caught:
                await found.broker.topic_stats(name)
            texts.append(str(caught.value).replace(name, ""))
        assert texts[0] == texts[1]


async def test_both_names_of_a_topic_are_one_resource() -> None:
    async with guarded() as found:
        await found.serving.log()
        await found.allow(DESCRIBE, TOPIC, "orders")
        for name in ("orders", "public/default/orders", "persistent://public/default/orders"):
            assert "orders" == (await found.broker.lookup(name, create=False)).name


async def test_listings_leave_out_what_the_client_may_not_describe() -> None:
    async with guarded() as found:
        service = found.serving.service
        for topic in ("orders", "secret"):
            await found.serving.log(topic)
        for group in ("s", "hidden"):
            await service.create_subscription("orders", group, "earliest")
        assert [] == await found.broker.topics()
        await found.allow(READ, TOPIC, "orders")
        await found.allow(READ, GROUP, "s")
        assert ["orders"] == await found.broker.topics()
        assert ["s"] == await found.broker.subscriptions("orders")
        assert ("s",) == (await found.broker.topic_stats("orders")).subscriptions


async def test_policies_of_a_topic_are_its_configs() -> None:
    async with guarded() as found:
        await found.serving.log()
        await found.allow(Operation.ALTER_CONFIGS, TOPIC, "orders")
        await found.broker.policies("orders")
        await found.broker.set_policies("orders", {}, [])
        with pytest.raises(NotAllowed):
            await found.broker.set_policies("public/default", {}, [])


async def test_a_producer_ends_when_its_right_goes() -> None:
    async with guarded() as found:
        await found.serving.log()
        link = Link()
        opening: dict[str, Any] = {"name": "p", "on_ended": link.on_ended}
        with pytest.raises(NotAllowed):
            await found.broker.open_producer("orders", 0, **opening)
        await found.allow(WRITE, TOPIC, "orders")
        await found.allow(DESCRIBE, TOPIC, "other")
        producer = await found.broker.open_producer("orders", 0, **opening)
        await producer.send(bytearray(batch("a")))
        await found.take(TOPIC, "other")
        assert [] == link.ends
        await found.take(TOPIC, "orders")
        assert [NotAllowed] == link.end_kinds
        await producer.close()
        await found.broker.close()
        assert 0 == len(found.authorizer.changed)


@pytest.mark.parametrize("taken", [(TOPIC, "orders"), (GROUP, "s")])
async def test_a_consumer_ends_when_one_of_its_rights_goes(taken: tuple[ResourceType, str]) -> None:
    async with guarded() as found:
        await found.serving.append("a")
        link = Link()
        await found.allow(READ, TOPIC, "orders")
        with pytest.raises(NotAllowed, match="READ GROUP s"):
            await open_consumer(found.broker)
        await found.allow(READ, GROUP, "s")
        consumer = await found.broker.open_consumer(
            request(), deliver=link.deliver, on_ended=link.on_ended
        )
        await found.take(*taken)
        assert [NotAllowed] == link.end_kinds
        await consumer.close()


async def test_a_closed_link_ignores_rules() -> None:
    async with guarded() as found:
        await found.serving.log()
        link = Link()
        await found.allow(WRITE, TOPIC, "orders")
        producer = await found.broker.open_producer("orders", 0, name="p", on_ended=link.on_ended)
        await producer.close()
        await found.broker.close()
        await found.take(TOPIC, "orders")
        assert [] == link.ends


async def test_a_reader_needs_the_topic_alone_and_takes_no_subscription() -> None:
    """The name of a subscription does not make it a reader's: a durable one stays a Group."""
    async with guarded() as found:
        await found.serving.append("a")
        await found.allow(READ, TOPIC, "orders")
        reader = await open_consumer(found.broker, "reader-1", is_durable=False)
        await reader.close()
        await found.serving.service.create_subscription("orders", "reader-2", "earliest")
        for name, is_durable in (("reader-2", False), ("reader-3", True), ("other", False)):
            with pytest.raises(NotAllowed):
                await open_consumer(found.broker, name, is_durable=is_durable)


async def test_named_topics_ask_for_what_they_change() -> None:
    async with guarded() as found:
        broker, service = found.broker, found.serving.service
        opening: dict[str, Any] = {"channel_count": 2, "options": NO_OPTIONS, "create": True}
        with pytest.raises(NotAllowed, match="DESCRIBE"):
            await broker.open_named_topic("jobs", **opening)
        await found.allow(READ, TOPIC, "jobs")
        with pytest.raises(NotAllowed, match="CREATE"):
            await broker.open_named_topic("jobs", **opening)
        await service.open_named_topic("jobs", **opening)
        assert 2 == (await broker.open_named_topic("jobs", **opening)).channel_count
        with pytest.raises(NotAllowed, match="ALTER"):
            await broker.open_named_topic("jobs", **(opening | {"channel_count": 3}))
        await found.serving.log("plain")
        await found.allow(READ, TOPIC, "plain")
        with pytest.raises(NotAllowed, match="ALTER"):
            await broker.open_named_topic("plain", **opening)
        assert ["jobs"] == await broker.named_topics()


async def test_subscribers_of_a_group_need_the_group() -> None:
    async with guarded() as found:
        broker, service = found.broker, found.serving.service
        await service.open_named_topic("jobs", channel_count=1, options=NO_OPTIONS, create=True)
        await service.ensure_subscriber_group("jobs", "workers", filter_name="", converter_name="")
        await found.allow(READ, TOPIC, "jobs")
        join = SubscriberJoin("workers", 0, "", "")
        with pytest.raises(NotAllowed, match="READ GROUP workers"):
            await broker.join_subscriber("jobs", join)
        for call in (
            broker.leave_subscriber("jobs", "workers", 1),
            broker.commit_channels("jobs", CommitRequest("workers", 1, ())),
            broker.seek_channels("jobs", SeekRequest("workers", 1, False, ())),
            broker.channel_ends("jobs", "workers", 1, -1),
            broker.destroy_subscriber_group("jobs", "workers"),
        ):
            with pytest.raises(NotAllowed, match="GROUP workers"):
                await call
        assert [] == await broker.subscriber_groups("jobs")
        anonymous = await broker.join_subscriber("jobs", SubscriberJoin("", 0, "", ""))
        await broker.leave_subscriber("jobs", anonymous.group, anonymous.subscriber)
        await found.allow(READ, GROUP, "workers")
        assert "workers" == (await broker.join_subscriber("jobs", join)).group
        assert ["workers"] == [each.name for each in await broker.subscriber_groups("jobs")]


async def test_changes_are_lines_of_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kledger.audit")
    async with guarded() as found:
        broker = found.broker
        for operation in (CREATE, ALTER, DESCRIBE, Operation.ALTER_CONFIGS):
            await found.allow(operation, CLUSTER, CLUSTER_NAME)
        for operation in (DESCRIBE, ALTER, DELETE, Operation.ALTER_CONFIGS):
            await found.allow(operation, TOPIC, "new")
        await broker.create_topic("new", 1, {})
        await broker.create_partitions("new", 2)
        await broker.set_policies("new", {"compactionThreshold": "987654"}, [])
        await broker.delete_topic("new")
        await broker.lookup("new", create=True)
        await broker.create_namespace("a/b")
        await broker.delete_namespace("a/b")
        await broker.topics()
        await broker.namespaces()
    lines = [record.getMessage() for record in caplog.records]
    events = [line.partition(" principal=")[0] for line in lines]
    assert [
        "created topic", "created partitions", "altered policies", "deleted topic",
        "created topic", "created namespace", "deleted namespace",
    ] == events  # fmt: skip
    assert all('principal="User:ann" address="127.0.0.1" name=' in line for line in lines)
    assert "987654" not in caplog.text, "values of policies are left out"
