"""What quotas may be about, and which values they may have; as Apache Kafka 4.3 refuses."""

import math
from dataclasses import dataclass

import pytest

from gateway.quota_entities import changed, entity_of
from gateway.quota_state import Entity
from gateway.refusals import Refused
from gateway.wire.error_codes import ErrorCode
from gateway.wire.messages.k49_alter_client_quotas import EntityData

RATE = "producer_byte_rate"


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
    ],
)
def test_entities_have_one_order(named: list[tuple[str, str | None]], entity: Entity) -> None:
    assert entity == entity_of(parts(*named))


@pytest.mark.parametrize(
    "named",
    [[], [("nope", "a")], [("client-id", "")], [("ip", "10.0.0.1")], [("user", "u"), ("ip", None)]],
)
def test_other_entities_are_refused(named: list[tuple[str, str | None]]) -> None:
    with pytest.raises(Refused) as caught:
        entity_of(parts(*named))
    assert ErrorCode.INVALID_REQUEST == caught.value.code


def test_changes_set_and_remove() -> None:
    before = {RATE: 5.0, "request_percentage": 1.0}
    ops = [Op(RATE, remove=True), Op("request_percentage", 2.5), Op("consumer_byte_rate", 7.0)]
    assert {"request_percentage": 2.5, "consumer_byte_rate": 7.0} == changed(before, ops)
    assert {RATE: 5.0, "request_percentage": 1.0} == before
    assert before == changed(before, [Op("nope", remove=True)])


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
        [Op("controller_mutation_rate", 1.0)],
        [Op("connection_creation_rate", 1.0)],
        [Op(RATE, 1.0), Op(RATE, 2.0)],
        [Op(RATE, 1.0), Op(RATE, remove=True)],
    ],
)
def test_other_changes_are_refused(ops: list[Op]) -> None:
    with pytest.raises(Refused) as caught:
        changed({}, ops)
    assert ErrorCode.INVALID_REQUEST == caught.value.code
