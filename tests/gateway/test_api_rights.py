"""Rights: every API has a row; a stranger gets what Apache Kafka gives it, and learns nothing."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compat_tests.differential.named_requests import Names, named_request
from compat_tests.differential.side import error_codes
from kledger.gateway.api_rights import API_RIGHTS, REFUSALS, Scope, request_rights
from kledger.gateway.config import GatewayConfig
from kledger.gateway.served_apis import HANDLERS, HandlerSpec
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k00_produce import ProduceRequest
from kledger.security.acl_state import Operation, ResourceType
from tests.gateway.authorized import ROOT, authorizer_of, authorizing_gateway, client_of
from tests.gateway.running import RunningGateway
from tests.gateway.test_sweep import outcome, request_class
from tests.gateway.wire.random_messages import message_of, settle
from tests.gateway.wire_client import WireClient
from tests.security.acl_words import allow

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 29, 30, 31, 53
HIDDEN = "hidden"
MISSING = "nothing"
OPEN_TO_ALL = {16, 17, 18, 36, 60, 66, 71, 72}
"""What a stranger is answered without a refusal: what it would see is left out."""
REFUSED = {
    0: TOPIC, 1: TOPIC, 2: TOPIC, 3: TOPIC, 8: GROUP, 9: GROUP, 10: GROUP, 11: GROUP, 12: GROUP,
    13: GROUP, 14: GROUP, 15: GROUP, 19: TOPIC, 20: TOPIC, 21: TOPIC, 22: CLUSTER, 23: TOPIC,
    24: TRANSACTIONAL_ID, 25: TRANSACTIONAL_ID, 26: TRANSACTIONAL_ID, 27: CLUSTER,
    28: TRANSACTIONAL_ID, 29: CLUSTER, 30: CLUSTER, 31: CLUSTER, 32: TOPIC, 33: TOPIC,
    34: CLUSTER, 35: CLUSTER, 37: TOPIC, 42: GROUP, 43: CLUSTER, 44: TOPIC, 45: CLUSTER,
    46: CLUSTER, 47: GROUP, 48: CLUSTER, 49: CLUSTER, 50: CLUSTER, 51: CLUSTER, 55: CLUSTER,
    57: CLUSTER, 61: TOPIC, 65: TRANSACTIONAL_ID, 68: GROUP, 69: GROUP, 74: CLUSTER, 75: TOPIC,
}  # fmt: skip
"""The code of every refusal that a stranger gets."""
OF_OTHERS = {38, 39, 40, 41}
"""Delegation tokens are refused for what the connection is."""
BY_ID = {0: 13, 1: 13, 8: 10, 9: 10}
"""APIs that name topics by id alone, since that version: an id is no name that could be guessed."""
SPECS = [spec for spec in HANDLERS if spec.key not in OF_OTHERS]


def refusals(answer: Any) -> set[int]:
    return set(error_codes(answer)) & set(map(int, REFUSALS.values()))


def shown(answer: Any) -> str:
    """Return an answer as text, without names, addresses in memory and ids of clients."""
    text = repr(answer).replace(HIDDEN, MISSING)
    return re.sub(r"0x[0-9a-f]+|client_instance_id=.*subscription_id=-?\d+", "", text)


def by_module(spec: HandlerSpec) -> str:
    return spec.module


async def ask(
    gateway: RunningGateway, client: WireClient, spec: HandlerSpec, version: int, names: Names
) -> Any:
    """Return the answer to a request about these names."""
    client.send(named_request(spec.key, version, names), version)
    answer = await outcome(gateway, client)
    assert answer is not None, f"version {version} was closed"
    return answer


async def names_of_hidden(gateway: RunningGateway) -> Names:
    topic = await gateway.create_topic(HIDDEN)
    return Names(HIDDEN, topic.id, HIDDEN, HIDDEN)


@pytest.mark.parametrize("spec", HANDLERS, ids=by_module)
def test_every_served_key_has_a_row(spec: HandlerSpec) -> None:
    assert spec.key in API_RIGHTS


def test_expectations_cover_every_key() -> None:
    assert {spec.key for spec in SPECS} <= REFUSED.keys() | OPEN_TO_ALL


@pytest.mark.parametrize("spec", SPECS, ids=by_module)
async def test_refusal_to_a_stranger_reveals_nothing(spec: HandlerSpec) -> None:
    """A stranger gets the same answer for what exists as for what does not."""
    config = GatewayConfig(connections_max_idle_ms=0)
    async with authorizing_gateway(config=config) as gateway:
        hidden, missing = (
            await names_of_hidden(gateway),
            Names(MISSING, group=MISSING, transactional_id=MISSING),
        )
        async with client_of(gateway, "stranger") as client:
            for version in range(spec.min_version, spec.max_version + 1):
                answer = await ask(gateway, client, spec, version, hidden)
                expected = {REFUSED[spec.key]} if spec.key in REFUSED else set()
                if spec.key == 24 and version >= 4:
                    expected = {CLUSTER}
                assert expected == refusals(answer), version
                if version >= BY_ID.get(spec.key, 99):
                    continue
                missing = missing._replace(topic_id=hidden.topic_id)
                other = await ask(gateway, client, spec, version, missing)
                assert shown(answer) == shown(other), version
        assert has_changed_nothing(gateway)


def has_changed_nothing(gateway: RunningGateway) -> bool:
    """Return whether neither topics nor records nor groups nor transactional ids were made."""
    services = gateway.services
    (topic,) = services.registry.all()
    log = topic.partition(0)
    return (
        log is not None
        and log.high_watermark == 0
        and not services.groups.list_groups([], [])
        and not services.transactions.records()
    )


@pytest.mark.parametrize("spec", SPECS, ids=by_module)
async def test_super_user_is_never_refused(spec: HandlerSpec) -> None:
    config = GatewayConfig(connections_max_idle_ms=0)
    async with authorizing_gateway(config=config) as gateway:
        names = await names_of_hidden(gateway)
        async with client_of(gateway, "root") as client:
            for version in (spec.min_version, spec.max_version):
                assert set() == refusals(await ask(gateway, client, spec, version, names))


HALF_RIGHTS = [
    (8, (allow("READ", "GROUP:hidden", "User:few"),), TOPIC),
    (9, (allow("DESCRIBE", "GROUP:hidden", "User:few"),), TOPIC),
    (24, (allow("WRITE", "TRANSACTIONAL_ID:hidden", "User:few"),), TOPIC),
    (25, (allow("WRITE", "TRANSACTIONAL_ID:hidden", "User:few"),), GROUP),
    (28, (allow("WRITE", "TRANSACTIONAL_ID:hidden", "User:few"),), GROUP),
    (
        28,
        (
            allow("WRITE", "TRANSACTIONAL_ID:hidden", "User:few"),
            allow("READ", "GROUP:hidden", "User:few"),
        ),
        TOPIC,
    ),
    (47, (allow("DELETE", "GROUP:hidden", "User:few"),), TOPIC),
    (68, (allow("READ", "GROUP:hidden", "User:few"),), TOPIC),
]


@pytest.mark.parametrize(("key", "rules", "expected"), HALF_RIGHTS)
async def test_one_right_of_several_is_not_enough(
    key: int, rules: tuple[Any, ...], expected: int
) -> None:
    config = GatewayConfig(connections_max_idle_ms=0)
    (spec,) = (each for each in HANDLERS if each.key == key)
    async with authorizing_gateway(rules, config) as gateway:
        names = await names_of_hidden(gateway)
        async with client_of(gateway, ROOT) as root:
            await root.ask(named_request(8, 9, names), 9)  # now there is such a group
        async with client_of(gateway, "few") as client:
            answer = await ask(gateway, client, spec, spec.min_version, names)
        assert {expected} == refusals(answer)


class RecordedRights:
    """Records what an authorizer is asked for, and allows it."""

    def __init__(self) -> None:
        self.asked: set[tuple[Operation, ResourceType]] = set()

    def authorize(self, *question: Any) -> bool:
        self.asked.add((question[2], question[3]))
        return True


@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_handlers_ask_for_nothing_beside_their_row(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(check_rows(data, monkeypatch))


async def check_rows(data: st.DataObject, monkeypatch: pytest.MonkeyPatch) -> None:
    config = GatewayConfig(connections_max_idle_ms=0)
    async with authorizing_gateway(config=config) as gateway:
        names = await names_of_hidden(gateway)
        for spec in HANDLERS:
            recorded = RecordedRights()
            monkeypatch.setattr(authorizer_of(gateway), "authorize", recorded.authorize)
            for version in (spec.min_version, spec.max_version):
                drawn = data.draw(message_of(request_class(spec)))
                if isinstance(drawn, ProduceRequest):
                    drawn.acks = 1
                for request in (settle(drawn, version), named_request(spec.key, version, names)):
                    async with client_of(gateway, "anybody") as client:
                        client.send(request, version)
                        await outcome(gateway, client)
            shown = {(each, kind) for kind in ResourceType for each in _shown(spec, kind)}
            row = {right[:2] for right in API_RIGHTS[spec.key]}
            assert recorded.asked - shown <= row, spec.module


def _shown(spec: HandlerSpec, kind: ResourceType) -> Iterator[Operation]:
    """Yield the operations that answers show as bit fields (KIP-430)."""
    if (spec.key, kind) in {
        (3, ResourceType.TOPIC), (3, ResourceType.CLUSTER), (15, ResourceType.GROUP),
        (60, ResourceType.CLUSTER), (69, ResourceType.GROUP), (75, ResourceType.TOPIC),
    }:  # fmt: skip
        yield from Operation


def test_right_of_a_whole_request_is_on_the_cluster() -> None:
    for rights in API_RIGHTS.values():
        for right in rights:
            if right.scope is Scope.REQUEST:
                assert ResourceType.CLUSTER is right.resource_type
    assert () == request_rights(24, 3)
    assert (Operation.CLUSTER_ACTION,) == request_rights(24, 4)


def test_codes_of_refusals() -> None:
    assert ErrorCode.TOPIC_AUTHORIZATION_FAILED is REFUSALS[ResourceType.TOPIC]
    assert ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED is REFUSALS[ResourceType.USER]
