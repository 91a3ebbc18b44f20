"""AlterClientQuotas, as Apache Kafka 4.3 answers."""

import pytest

from kledger.gateway.wire.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kledger.ledger.testing import FaultyEngine
from tests.gateway.running import running_gateway

INVALID_REQUEST, STORAGE = 42, 56
RATE, PERCENTAGE = "producer_byte_rate", "request_percentage"


def entry(name: str | None, *ops: OpData, kind: str = "client-id") -> EntryData:
    return EntryData(entity=[EntityData(entity_type=kind, entity_name=name)], ops=list(ops))


def put(key: str, value: float) -> OpData:
    return OpData(key=key, value=value)


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_are_set_removed_and_kept(version: int) -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        entries = [entry("a", put(RATE, 10.0), put(PERCENTAGE, 2.5)), entry(None, put(RATE, 5.0))]
        answer = await client.ask(AlterClientQuotasRequest(entries=entries), version)
        assert [(0, None), (0, None)] == [(e.error_code, e.error_message) for e in answer.entries]
        entries = [entry("a", OpData(key=RATE, remove=True)), entry("b")]
        await client.ask(AlterClientQuotasRequest(entries=entries), version)
    async with running_gateway(engine=engine) as gateway:
        assert {
            (("client-id", "a"),): {PERCENTAGE: 2.5},
            (("client-id", None),): {RATE: 5.0},
        } == gateway.services.quotas.state.quotas


async def test_nothing_changes_when_it_is_only_checked() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        request = AlterClientQuotasRequest(entries=[entry("a", put(RATE, 1.0))], validate_only=True)
        (outcome,) = (await client.ask(request, 1)).entries
        assert 0 == outcome.error_code
        assert {} == gateway.services.quotas.state.quotas


async def test_one_refused_entity_leaves_the_others_alone() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        entries = [
            entry("bad", put(RATE, 1.5)),
            entry("10.0.0.1", put(RATE, 1.0), kind="ip"),
            entry("10.0.0.2", put("connection_creation_rate", 1.0), kind="ip"),
            entry("twice", put(RATE, 1.0)),
            entry("good", put(RATE, 1.0)),
            entry("twice", put(RATE, 2.0)),
        ]
        answer = await client.ask(AlterClientQuotasRequest(entries=entries), 1)
        assert [
            ("bad", INVALID_REQUEST),
            ("10.0.0.1", INVALID_REQUEST),
            ("10.0.0.2", 0),
            ("twice", INVALID_REQUEST),
            ("good", 0),
        ] == [(each.entity[0].entity_name, each.error_code) for each in answer.entries]
        assert {
            (("client-id", "good"),): {RATE: 1.0},
            (("ip", "10.0.0.2"),): {"connection_creation_rate": 1.0},
        } == gateway.services.quotas.state.quotas


async def test_of_two_parts_of_one_type_the_later_one_counts_and_is_answered() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        twice, later = entry("a", put(RATE, 1.0)), entry("b", put(RATE, 2.0))
        twice.entity.append(later.entity[0])
        (outcome,) = (await client.ask(AlterClientQuotasRequest(entries=[twice, later]), 1)).entries
        assert (INVALID_REQUEST, ["b"]) == (
            outcome.error_code, [part.entity_name for part in outcome.entity],
        )  # fmt: skip


async def test_what_cannot_be_stored_does_not_hold() -> None:
    engine = FaultyEngine(None)
    async with running_gateway(engine=engine) as gateway, gateway.client() as client:
        engine.fail_next("commit")
        request = AlterClientQuotasRequest(entries=[entry("a", put(RATE, 1.0))])
        (outcome,) = (await client.ask(request, 1)).entries
        assert STORAGE == outcome.error_code
        assert not gateway.services.quotas.state.is_limiting
