"""Configuration resources: what can be changed, and that one refusal stays alone."""

from dataclasses import dataclass

import pytest

from kledger.gateway.api_errors import ApiError
from kledger.gateway.configs.resource_requests import (
    AlterResult,
    alter_each,
    check_names_not_repeated,
    value_of,
)
from kledger.gateway.peer import Peer
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.topics import InvalidConfig
from tests.gateway.running import RunningGateway

TOPIC = 2

REPEATED = "Each resource must appear at most once: expected once in the request, got 2 times"


@dataclass
class Named:
    resource_name: str = "t"
    resource_type: int = TOPIC


@dataclass
class Set:
    name: str
    value: str | None = "1"


def context_of(gateway: RunningGateway) -> RequestContext:
    return RequestContext(
        services=gateway.services, version=0, client_id=None, connection_id=1, peer=Peer("")
    )


async def test_alter_each_answers_each_and_alters_what_it_can() -> None:
    altered = []

    async def alter(resource: Named) -> None:
        if resource.resource_name == "bad":
            raise InvalidConfig("no")
        altered.append(resource.resource_name)

    resources = [Named("a"), Named("twice"), Named("bad"), Named("twice"), Named("b")]
    outcomes = await alter_each(resources, alter)
    refused = AlterResult(ErrorCode.INVALID_REQUEST, REPEATED, TOPIC, "twice")
    assert [
        AlterResult(ErrorCode.NONE, None, TOPIC, "a"),
        refused,
        AlterResult(ErrorCode.INVALID_CONFIG, "no", TOPIC, "bad"),
        refused,
        AlterResult(ErrorCode.NONE, None, TOPIC, "b"),
    ] == outcomes
    assert ["a", "b"] == altered


def test_settings_need_a_value_and_stand_once() -> None:
    assert "1" == value_of(Set("a"))
    check_names_not_repeated([Set("a"), Set("b")])
    with pytest.raises(ApiError, match="Null value not supported for : a"):
        value_of(Set("a", None))
    with pytest.raises(ApiError, match="duplicate config keys: a, 2 times"):
        check_names_not_repeated([Set("a"), Set("b"), Set("a", None)])
