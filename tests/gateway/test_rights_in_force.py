"""Rules in force: what is cached, kept and waiting follows a change of the rules."""

import asyncio
from typing import Any

import pytest

from kledger.gateway.wire.messages.k00_produce import ProduceRequest
from kledger.gateway.wire.messages.k01_fetch import FetchRequest
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from kledger.gateway.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kledger.gateway.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from kledger.gateway.wire.messages.k22_init_producer_id import InitProducerIdRequest
from kledger.gateway.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from kledger.security.acl_state import AclFilter, Operation
from tests.gateway.authorized import (
    authorizer_of,
    authorizing_gateway,
    client_of,
    forget_rules,
)
from tests.gateway.running import RunningGateway, batch, fetch, produce, until
from tests.gateway.txn_client import TxnClient
from tests.gateway.wire_client import WireClient
from tests.security.acl_words import allow, deny

TOPIC_FAILED, CLUSTER_FAILED, TRANSACTIONAL_ID_FAILED = 29, 31, 53
INVALID_PRODUCER_ID_MAPPING = 49
FETCH_SESSION_ID_NOT_FOUND = 70
UNKNOWN_TOPIC = 3
READ, WRITE = allow("READ", "TOPIC:t"), allow("WRITE", "TOPIC:t")


async def produced(client: WireClient, version: int = 9, **fields: Any) -> int:
    response = await client.ask(produce({0: batch(b"v")}, **fields), version)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def in_session(session_id: int, epoch: int, request: FetchRequest) -> FetchRequest:
    request.session_id, request.session_epoch = session_id, epoch
    return request


def outcomes(response: Any) -> list[tuple[int, bool]]:
    """Return error code and whether there are records, of each partition."""
    return [
        (partition.error_code, bool(partition.records))
        for topic in response.responses
        for partition in topic.partitions
    ]


# Produce.


async def test_route_of_produce_ends_with_the_right() -> None:
    """The route of the first request would have let the second one in."""
    async with authorizing_gateway([WRITE]) as gateway, client_of(gateway, "alice") as client:
        await gateway.create_topic()
        assert [0, 0] == [await produced(client), await produced(client)]
        await forget_rules(gateway)
        assert TOPIC_FAILED == await produced(client)
        await authorizer_of(gateway).create([WRITE])
        assert 0 == await produced(client)


async def test_route_of_produce_is_its_users_alone() -> None:
    async with authorizing_gateway([WRITE]) as gateway:
        await gateway.create_topic()
        async with client_of(gateway, "alice") as alice, client_of(gateway, "bob") as bob:
            assert 0 == await produced(alice)
            assert TOPIC_FAILED == await produced(bob)
            assert 0 == await produced(alice)


async def test_produce_by_id_is_refused_by_the_name() -> None:
    async with authorizing_gateway() as gateway, client_of(gateway, "alice") as client:
        topic = await gateway.create_topic()
        assert TOPIC_FAILED == await produced(client, 13, topic_id=topic.id)
        await authorizer_of(gateway).create([WRITE])
        assert 0 == await produced(client, 13, topic_id=topic.id)


async def test_other_spelling_of_a_topic_has_the_same_rules() -> None:
    """A rule that denied `t` did not bind its other spellings."""
    rules = [allow("WRITE", "TOPIC:*"), deny("WRITE", "TOPIC:t")]
    async with authorizing_gateway(rules) as gateway, client_of(gateway, "alice") as client:
        await gateway.create_topic()
        for spelling in ("t", "public/default/t", "persistent://public/default/t"):
            assert TOPIC_FAILED == await produced(client, topic=spelling)


# Transactions.


async def test_transactional_batches_need_the_right_on_the_transactional_id() -> None:
    own_id = allow("WRITE", "TRANSACTIONAL_ID:x")
    async with authorizing_gateway([WRITE, own_id]) as gateway:
        await gateway.create_topic()
        async with client_of(gateway, "alice") as client:
            producer = TxnClient(client)
            assert 0 == await producer.init()
            assert {0: 0} == await producer.add(0)
            await authorizer_of(gateway).delete([AclFilter(name="x")])
            assert TRANSACTIONAL_ID_FAILED == await producer.produce(b"v")
            assert TRANSACTIONAL_ID_FAILED == await producer.init()


async def test_producer_id_of_another_is_refused_in_its_transaction() -> None:
    """Mallory has a transactional id of her own, and the right to write to the topic."""
    rules = [
        WRITE,
        allow("WRITE", "TRANSACTIONAL_ID:x"),
        allow("WRITE", "TOPIC:t", "User:mallory"),
        allow("WRITE", "TRANSACTIONAL_ID:y", "User:mallory"),
    ]
    async with authorizing_gateway(rules) as gateway:
        topic = await gateway.create_topic()
        log = topic.partition(0)
        assert log is not None
        async with client_of(gateway, "alice") as client, client_of(gateway, "mallory") as other:
            producer, thief = TxnClient(client), TxnClient(other, "y")
            assert [0, 0] == [await producer.init(), await thief.init()]
            assert {0: 0} == await producer.add(0)
            assert 0 == await producer.produce(b"v")
            end = log.high_watermark
            thief.producer_id, thief.epoch = producer.producer_id, producer.epoch
            thief.sequences = dict(producer.sequences)
            assert INVALID_PRODUCER_ID_MAPPING == await thief.produce(b"stolen")
            assert end == log.high_watermark
            assert 0 == await producer.produce(b"w")


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ([], CLUSTER_FAILED),
        ([WRITE], 0),
        ([allow("IDEMPOTENT_WRITE", "CLUSTER:kafka-cluster")], 0),
        ([READ], CLUSTER_FAILED),
    ],
)
async def test_idempotent_producer_may_write_somewhere(rules: list[Any], code: int) -> None:
    async with authorizing_gateway(rules) as gateway, client_of(gateway, "alice") as client:
        answer = await client.ask(InitProducerIdRequest(transactional_id=None), 5)
        assert code == answer.error_code


# Fetch.


async def has_records(gateway: RunningGateway, *names: str) -> None:
    for name in names:
        await gateway.create_topic(name)
    async with client_of(gateway, "root") as root:
        for name in names:
            assert 0 == await produced(root, topic=name)


async def parked_fetch(gateway: RunningGateway, client: WireClient, session: bool) -> None:
    request = fetch({0: 1}, max_wait_ms=60_000)
    request.session_epoch = 0 if session else -1
    client.send(request, 12)
    await gateway.parked()


@pytest.mark.parametrize("session", [False, True])
async def test_parked_fetch_ends_when_its_right_goes(session: bool) -> None:
    async with authorizing_gateway([READ]) as gateway, client_of(gateway, "alice") as client:
        await has_records(gateway, "t")
        await parked_fetch(gateway, client, session)
        await forget_rules(gateway)
        assert [(TOPIC_FAILED, False)] == outcomes(await client.receive())
        assert 0 == len(authorizer_of(gateway).changed)


@pytest.mark.parametrize("session", [False, True])
async def test_parked_fetch_goes_on_when_another_right_goes(session: bool) -> None:
    rules = [READ, WRITE]
    async with authorizing_gateway(rules) as gateway, client_of(gateway, "alice") as client:
        await has_records(gateway, "t")
        await parked_fetch(gateway, client, session)
        await authorizer_of(gateway).delete([AclFilter(operation=Operation.WRITE)])
        async with client_of(gateway, "root") as root:
            assert 0 == await produced(root)
        assert [(0, True)] == outcomes(await client.receive())


async def test_fetch_that_is_repeated_ends_with_the_right() -> None:
    """The fetch that waited before is kept for the next one that equals it."""
    async with authorizing_gateway([READ]) as gateway, client_of(gateway, "alice") as client:
        await has_records(gateway, "t")
        request = fetch({0: 1}, max_wait_ms=100)
        request.session_epoch = -1
        client.send(request, 12)
        await gateway.parked()
        gateway.clock.advance(100)
        assert [(0, False)] == outcomes(await client.receive())
        await forget_rules(gateway)
        assert [(TOPIC_FAILED, False)] == outcomes(await client.ask(request, 12))


async def test_session_loses_and_regains_a_partition_with_the_right() -> None:
    other = allow("READ", "TOPIC:u")
    async with authorizing_gateway([READ, other]) as gateway:
        await has_records(gateway, "t", "u")
        async with client_of(gateway, "alice") as client:
            request = fetch({0: 0})
            request.topics += fetch({0: 0}, topic="u").topics
            request.session_epoch = 0
            first = await client.ask(request, 12)
            assert [(0, True), (0, True)] == outcomes(first)

            def again(epoch: int) -> FetchRequest:
                return in_session(
                    first.session_id, epoch, FetchRequest(topics=[], max_bytes=1 << 20)
                )

            await authorizer_of(gateway).delete([AclFilter(name="t")])
            lost = await client.ask(again(1), 12)
            assert {(0, True), (TOPIC_FAILED, False)} == set(outcomes(lost))
            await authorizer_of(gateway).create([READ])
            regained = await client.ask(again(2), 12)
            assert [(0, True), (0, True)] == outcomes(regained)


async def test_session_is_not_another_users() -> None:
    rules = [READ, allow("READ", "TOPIC:t", "User:mallory")]
    async with authorizing_gateway(rules) as gateway:
        await has_records(gateway, "t")
        async with client_of(gateway, "alice") as alice, client_of(gateway, "mallory") as mallory:
            request = fetch({0: 0})
            request.session_epoch = 0
            session_id = (await alice.ask(request, 12)).session_id
            taken = in_session(session_id, 1, FetchRequest(topics=[]))
            assert FETCH_SESSION_ID_NOT_FOUND == (await mallory.ask(taken, 12)).error_code
            ended = in_session(session_id, -1, FetchRequest(topics=[]))
            await mallory.ask(ended, 12)
            own = in_session(session_id, 1, FetchRequest(topics=[], max_bytes=1 << 20))
            assert 0 == (await alice.ask(own, 12)).error_code


async def test_follower_must_act_for_the_cluster() -> None:
    rules = [READ, allow("READ", "TOPIC:t", "User:broker")]
    rules.append(allow("CLUSTER_ACTION", "CLUSTER:kafka-cluster", "User:broker"))
    async with authorizing_gateway(rules) as gateway:
        await has_records(gateway, "t")
        for name, expected in (("alice", (TOPIC_FAILED, False)), ("broker", (0, True))):
            request = fetch({0: 0})
            request.replica_id, request.session_epoch = 2, -1
            async with client_of(gateway, name) as client:
                assert [expected] == outcomes(await client.ask(request, 12))


# Metadata and topics.


def described(response: Any) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in response.topics}


async def test_listing_of_topics_is_each_users_own() -> None:
    rules = [allow("DESCRIBE", "TOPIC:a"), allow("READ", "TOPIC:b...", "User:bob")]
    async with authorizing_gateway(rules) as gateway:
        for name in ("a", "b", "bb", "c"):
            await gateway.create_topic(name)
        seen = {}
        for name in ("alice", "bob", "root", "stranger", "alice"):
            async with client_of(gateway, name) as client:
                answer = await client.ask(MetadataRequest(topics=None), 12)
                seen[name] = "".join(sorted(described(answer)))  # type: ignore[arg-type]
        assert {"alice": "a", "bob": "bbb", "root": "abbbc", "stranger": ""} == seen
        await forget_rules(gateway)
        async with client_of(gateway, "alice") as client:
            assert {} == described(await client.ask(MetadataRequest(topics=None), 12))


async def test_operations_in_metadata_are_each_users_own() -> None:
    async with authorizing_gateway([READ]) as gateway:
        await gateway.create_topic()
        for name, expected in (("alice", 1 << 3 | 1 << 8), ("root", 3576)):
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name="t")], include_topic_authorized_operations=True
            )
            async with client_of(gateway, name) as client:
                answer = await client.ask(request, 12)
                assert expected == answer.topics[0].topic_authorized_operations


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ([], TOPIC_FAILED),
        ([allow("DESCRIBE", "TOPIC:new")], TOPIC_FAILED),
        ([allow("CREATE", "TOPIC:new")], TOPIC_FAILED),
        ([allow("DESCRIBE", "TOPIC:new"), allow("CREATE", "TOPIC:n...")], 0),
        ([allow("DESCRIBE", "TOPIC:*"), allow("CREATE", "CLUSTER:kafka-cluster")], 0),
    ],
)
async def test_topic_is_created_by_users_that_may(rules: list[Any], code: int) -> None:
    async with authorizing_gateway(rules) as gateway, client_of(gateway, "alice") as client:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
        assert {"new": code} == described(await client.ask(request, 8))
        assert (not code) == (gateway.services.registry.get("new") is not None)


async def test_metadata_by_id_has_no_name_for_a_stranger() -> None:
    async with authorizing_gateway() as gateway, client_of(gateway, "alice") as client:
        topic = await gateway.create_topic()
        request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic.id)])
        (answer,) = (await client.ask(request, 12)).topics
        assert (TOPIC_FAILED, None, topic.id, []) == (
            answer.error_code,
            answer.name,
            answer.topic_id,
            answer.partitions,
        )


async def test_created_topic_is_shown_without_its_configuration() -> None:
    async with (
        authorizing_gateway([allow("CREATE", "TOPIC:new")]) as gateway,
        client_of(gateway, "alice") as client,
    ):
        creation = CreatableTopic(name="new", num_partitions=3, replication_factor=1)
        (result,) = (await client.ask(CreateTopicsRequest(topics=[creation]), 7)).topics
        assert (0, TOPIC_FAILED, -1, -1) == (
            result.error_code,
            result.topic_config_error_code,
            result.num_partitions,
            result.replication_factor,
        )
        assert not result.configs


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], {"t": TOPIC_FAILED, "no": TOPIC_FAILED}),
        ([allow("DESCRIBE", "TOPIC:*")], {"t": TOPIC_FAILED, "no": UNKNOWN_TOPIC}),
        ([allow("DELETE", "TOPIC:t")], {"t": 0, "no": TOPIC_FAILED}),
        ([allow("DELETE", "CLUSTER:kafka-cluster")], {"t": 0, "no": UNKNOWN_TOPIC}),
    ],
)
async def test_topics_are_deleted_by_users_that_may(
    rules: list[Any], expected: dict[str, int]
) -> None:
    async with authorizing_gateway(rules) as gateway, client_of(gateway, "alice") as client:
        await gateway.create_topic()
        topics = [DeleteTopicState(name=name) for name in expected]
        answer = await client.ask(DeleteTopicsRequest(topics=topics), 6)
        assert expected == {each.name: each.error_code for each in answer.responses}


async def test_stranger_does_not_get_the_owner_of_an_id() -> None:
    """A name and an id of one topic were answered as one, to every client."""
    async with authorizing_gateway() as gateway, client_of(gateway, "alice") as client:
        topic = await gateway.create_topic()
        topics = [DeleteTopicState(name="t"), DeleteTopicState(name=None, topic_id=topic.id)]
        answer = await client.ask(DeleteTopicsRequest(topics=topics), 6)
        found = [(each.name, each.error_code) for each in answer.responses]
        assert [("t", TOPIC_FAILED), (None, TOPIC_FAILED)] == found


async def test_produce_without_an_answer_closes_the_connection_of_a_stranger() -> None:
    async with authorizing_gateway() as gateway, client_of(gateway, "alice") as client:
        topic = await gateway.create_topic()
        request: ProduceRequest = produce({0: batch(b"v")}, acks=0)
        client.send(request, 9, is_answered=False)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.ask(MetadataRequest(topics=[]), 8)
        await until(lambda: gateway.server.connection_count == 0)
        log = topic.partition(0)
        assert log is not None
        assert 0 == log.high_watermark


async def test_expression_of_a_member_matches_what_it_may_describe() -> None:
    """A member would have learned the ids of all topics, and that they exist."""
    rules = [allow("READ", "GROUP:g"), allow("DESCRIBE", "TOPIC:t")]
    async with authorizing_gateway(rules) as gateway, client_of(gateway, "alice") as client:
        topics = [await gateway.create_topic(name) for name in ("t", "secret-plans")]

        async def assigned(epoch: int, **fields: Any) -> tuple[int, set[Any]]:
            """Return the epoch of the answer, and the ids of the assigned topics."""
            heartbeat = ConsumerGroupHeartbeatRequest(
                group_id="g", member_id="m", member_epoch=epoch, **fields
            )
            answer = await client.ask(heartbeat, 1)
            assert 0 == answer.error_code
            listed = answer.assignment.topic_partitions if answer.assignment else ()
            return answer.member_epoch, {each.topic_id for each in listed}

        epoch, ids = await assigned(
            0, rebalance_timeout_ms=60_000, subscribed_topic_regex=".*", topic_partitions=[]
        )
        assert {topics[0].id} == ids
        await authorizer_of(gateway).create([allow("READ", "TOPIC:secret-plans")])
        _, ids = await assigned(epoch)
        assert {each.id for each in topics} == ids
