"""Quotas of users who have logged in, over the wire (KIP-55)."""

import asyncio

import kledger
from kledger.gateway.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kledger.gateway.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from kledger.gateway.wire.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kledger.ledger.testing import ManualClock
from kledger.runtime.clock import SystemClock
from kledger.testing import Server
from tests.gateway.wire_client import WireClient
from tests.kledger.test_delegation_token_login import SETTINGS, handshaken

QUOTA_EXCEEDED = 89
USERS = {
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_ann="ann-pw" user_bob="bob-pw";'
    ),
}


async def log_in(client: WireClient, user: str) -> None:
    token = f"\0{user}\0{user}-pw".encode()
    assert 0 == (await client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)).error_code


async def created(client: WireClient, name: str, client_id: str) -> tuple[int, int]:
    """Ask for a topic of 12 partitions; return the error code and the throttle time."""
    topic = CreatableTopic(name=name, num_partitions=12, replication_factor=1)
    client.send(CreateTopicsRequest(topics=[topic]), 7, client_id=client_id)
    answer = await client.receive()
    return answer.topics[0].error_code, answer.throttle_time_ms


async def test_a_quota_of_a_user_with_a_client_id_is_for_these_alone() -> None:
    entity = [
        EntityData(entity_type="user", entity_name="ann"),
        EntityData(entity_type="client-id", entity_name="app"),
    ]
    change = OpData(key="controller_mutation_rate", value=1.0)
    request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[change])])
    async with (
        Server(settings=SETTINGS | USERS, clock=ManualClock(1)) as server,
        handshaken(server, "PLAIN") as ann,
        handshaken(server, "PLAIN") as bob,
    ):
        await log_in(ann, "ann")
        await log_in(bob, "bob")
        assert 0 == (await ann.ask(request, 1)).entries[0].error_code
        assert (0, 0) == await created(ann, "a", "app")
        for client, client_id in ((bob, "app"), (ann, "other")):
            for number in range(2):
                assert (0, 0) == await created(
                    client, f"{client_id}-{number}-{id(client)}", client_id
                )
        assert (QUOTA_EXCEEDED, 1_000) == await created(ann, "b", "app")


async def test_quotas_of_a_user_count_for_native_clients() -> None:
    """A batch over the quota is stored, and the next one waits until the rate is within it."""
    entity = [EntityData(entity_type="user", entity_name="ann")]
    change = OpData(key="producer_byte_rate", value=1.0)
    request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[change])])
    clock = ManualClock(SystemClock().now_ms())  # clients put the time into their batches
    async with (
        Server(settings=SETTINGS | USERS, clock=clock, native="127.0.0.1:0") as server,
        handshaken(server, "PLAIN") as kafka,
    ):
        await log_in(kafka, "ann")
        assert 0 == (await kafka.ask(request, 1)).entries[0].error_code
        url = f"kledger://{server.native_address}"
        async with (
            kledger.connect(url, username="ann", password="ann-pw") as ann,
            kledger.connect(url, username="bob", password="bob-pw") as bob,
        ):
            await ann.create_topic("t", partitions=1)
            first = await ann.create_producer("t", batching=False)
            await first.send(b"x" * 100)
            second = asyncio.ensure_future(first.send(b"y"))
            other = await bob.create_producer("t", batching=False)
            for _ in range(3):
                await other.send(b"z" * 100)
            assert not second.done()
            clock.advance(1_000_000)
            assert (await second).entry_id
