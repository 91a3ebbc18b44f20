"""What quotas may be about, and which values they may have; as Apache Kafka 4.3 refuses."""

import math
from dataclasses import dataclass

import pytest

from kledger.gateway.api_errors import ApiError
from kledger.gateway.quotas.quota_entities import altered_quotas, parse_entity
from kledger.gateway.quotas.quota_state import Entity
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k49_alter_client_quotas import EntityData

RATE = "producer_byte_rate"
CLIENT: Entity = (("client-id", "a"),)
ADDRESS: Entity = (("ip", "10.0.0.1"),)


@dataclass
class Op:
    key: str = RATE
    value: float = 0.0
    remove: bool = False


def parts(*named: tuple[str, str | None]) -> list[EntityData]:
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in named]


@pytest.mark.parametrize(
    ("named", "entity"),
    [
        ([("client-id", "a")], (("client-id", "a"),)),
        ([("client-id", None)], (("client-id", None),)),
        ([("user", "u"), ("client-id", "a")], (("client-id", "a"), ("user", "u"))),
        ([("client-id", "a"), ("client-id", "b")], (("client-id", "b"),)),
        ([("ip", "10.0.0.1")], (("ip", "10.0.0.1"),)),
        ([("ip", "::1")], (("ip", "::1"),)),
        ([("ip", None)], (("ip", None),)),
    ],
)
def test_entities_have_one_order(named: list[tuple[str, str | None]], entity: Entity) -> None:
    assert entity == parse_entity(parts(*named))


@pytest.mark.parametrize(
    "named",
    [
        [],
        [("nope", "a")],
        [("client-id", "")],
        [("ip", "")],
        [("ip", "10.1")],
        [("ip", "300.0.0.1")],
        [("ip", "0:0:0:0:0:0:0:1")],
        [("ip", "localhost")],
        [("user", "u"), ("ip", None)],
        [("ip", "10.0.0.1"), ("client-id", "a")],
    ],
)
def test_other_entities_are_refused(named: list[tuple[str, str | None]]) -> None:
    with pytest.raises(ApiError) as caught:
        parse_entity(parts(*named))
    assert ErrorCode.INVALID_REQUEST == caught.value.code


def test_changes_set_and_remove() -> None:
    before = {RATE: 5.0, "request_percentage": 1.0}
    ops = [Op(RATE, remove=True), Op("request_percentage", 2.5), Op("consumer_byte_rate", 7.0)]
    assert {"request_percentage": 2.5, "consumer_byte_rate": 7.0} == altered_quotas(
        CLIENT, before, ops
    )
    assert {RATE: 5.0, "request_percentage": 1.0} == before
    assert before == altered_quotas(CLIENT, before, [Op("nope", remove=True)])


@pytest.mark.parametrize(
    "ops",
    [
        [Op(RATE, 0.0)],
        [Op(RATE, -5.0)],
        [Op(RATE, 1.5)],
        [Op(RATE, math.inf)],
        [Op(RATE, math.nan)],
        [Op(RATE, 1e300)],
        [Op("request_percentage", 0.0)],
        [Op("request_percentage", math.nan)],
        [Op("nope", 1.0)],
        [Op("controller_mutation_rate", 0.0)],
        [Op("connection_creation_rate", 1.0)],
        [Op(RATE, 1.0), Op(RATE, 2.0)],
        [Op(RATE, 1.0), Op(RATE, remove=True)],
    ],
)
def test_other_changes_are_refused(ops: list[Op]) -> None:
    with pytest.raises(ApiError) as caught:
        altered_quotas(CLIENT, {}, ops)
    assert ErrorCode.INVALID_REQUEST == caught.value.code


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (CLIENT, RATE, float(2**63 - 1)),
        (CLIENT, "controller_mutation_rate", 0.001),
        (ADDRESS, "connection_creation_rate", 1.0),
        (ADDRESS, "connection_creation_rate", 2.0**31 - 1),
    ],
)
def test_changes_within_limits_are_taken(entity: Entity, key: str, value: float) -> None:
    assert {key: value} == altered_quotas(entity, {}, [Op(key, value)])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("connection_creation_rate", 0.0),
        ("connection_creation_rate", 1.5),
        ("connection_creation_rate", 2.0**31),
        (RATE, 1.0),
    ],
)
def test_an_address_has_other_quotas(key: str, value: float) -> None:
    with pytest.raises(ApiError) as caught:
        altered_quotas(ADDRESS, {}, [Op(key, value)])
    assert ErrorCode.INVALID_REQUEST == caught.value.code
