"""DescribeClientQuotas, as Apache Kafka 4.3 filters; row 27 of docs/SCENARIOS.md."""

import pytest

from kledger.gateway.quotas.quota_state import Entity
from kledger.gateway.wire.messages.k48_describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tests.gateway.running import running_gateway

UNSUPPORTED_VERSION, INVALID_REQUEST = 35, 42
EXACT, DEFAULT, ANY = range(3)
A, AU, D, U, UD, IP, IPD = (
    (("client-id", "a"),),
    (("client-id", "a"), ("user", "u")),
    (("client-id", None),),
    (("user", "u"),),
    (("user", None),),
    (("ip", "10.0.0.1"),),
    (("ip", None),),
)
ENTITIES: tuple[Entity, ...] = (A, AU, D, U, UD, IP, IPD)
Component = tuple[str, int, str | None]


def request(components: list[Component], *, strict: bool) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match, match=name)
            for kind, match, name in components
        ],
        strict=strict,
    )


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("components", "loose", "strict"),
    [
        ([], set(ENTITIES), set[Entity]()),
        ([("client-id", EXACT, "a")], {A, AU}, {A}),
        ([("client-id", DEFAULT, None)], {D}, {D}),
        ([("client-id", ANY, None)], {A, AU, D}, {A, D}),
        ([("user", ANY, None)], {AU, U, UD}, {U, UD}),
        ([("user", EXACT, "u")], {AU, U}, {U}),
        ([("user", ANY, None), ("client-id", ANY, None)], {AU}, {AU}),
        ([("client-id", EXACT, "nobody")], set[Entity](), set[Entity]()),
        ([("ip", ANY, None)], {IP, IPD}, {IP, IPD}),
        ([("ip", DEFAULT, None)], {IPD}, {IPD}),
        ([("ip", EXACT, "10.0.0.1")], {IP}, {IP}),
        ([("ip", EXACT, "nowhere")], set[Entity](), set[Entity]()),
    ],
)
async def test_row_27_entities_that_fit_are_shown(
    components: list[Component], loose: set[Entity], strict: set[Entity], version: int
) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        for entity in ENTITIES:
            await gateway.services.quotas.put(entity, {"producer_byte_rate": 1e9})
        for is_strict, expected in ((False, loose), (True, strict)):
            answer = await client.ask(request(components, strict=is_strict), version)
            assert 0 == answer.error_code
            assert answer.entries is not None
            shown = {
                tuple((part.entity_type, part.entity_name) for part in entry.entity)
                for entry in answer.entries
            }
            assert expected == shown


async def test_values_are_shown_by_name() -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        quotas = {"request_percentage": 12.5, "consumer_byte_rate": 1024.0}
        await gateway.services.quotas.put(A, quotas)
        (entry,) = (await client.ask(request([], strict=False), 1)).entries
        assert sorted(quotas.items()) == [(value.key, value.value) for value in entry.values]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("client-id", EXACT, None)], INVALID_REQUEST),
        ([("client-id", DEFAULT, "x")], INVALID_REQUEST),
        ([("client-id", 9, None)], INVALID_REQUEST),
        ([("client-id", ANY, None), ("client-id", ANY, None)], INVALID_REQUEST),
        ([("ip", ANY, None), ("user", ANY, None)], INVALID_REQUEST),
        ([("", ANY, None)], INVALID_REQUEST),
        ([("nope", ANY, None)], UNSUPPORTED_VERSION),
    ],
)
async def test_filters_that_make_no_sense_are_refused(
    components: list[Component], code: int
) -> None:
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(request(components, strict=False), 1)
        assert (code, None) == (answer.error_code, answer.entries)
