"""Configuration resources: what can be changed, and that one refusal stays alone."""

from dataclasses import dataclass

import pytest

from gateway.config_resources import (
    Outcome,
    alter_each,
    alter_topic,
    find_alterable_topic,
    refuse_repeated_names,
    value_of,
)
from gateway.context import Peer, RequestContext
from gateway.refusals import Refused
from gateway.wire.error_codes import ErrorCode
from tests.gateway.running import RunningGateway, running_gateway
from topics import InvalidConfig, InvalidTopicName, TopicsError, UnknownTopic

TOPIC = 2


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
    refused = Outcome(
        ErrorCode.INVALID_REQUEST, "expected once in the request, got 2 times", TOPIC, "twice"
    )
    assert [
        Outcome(ErrorCode.NONE, None, TOPIC, "a"),
        refused,
        Outcome(ErrorCode.INVALID_CONFIG, "no", TOPIC, "bad"),
        refused,
        Outcome(ErrorCode.NONE, None, TOPIC, "b"),
    ] == outcomes
    assert ["a", "b"] == altered


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (TOPIC, "", "all topics"),
        (8, "1", "type 8"),
        (16, "x", "type 16"),
        (32, "x", "type 32"),
        (99, "x", "type 99"),
    ],
)
async def test_what_has_no_settings_cannot_be_altered(kind: int, name: str, message: str) -> None:
    async with running_gateway() as gateway:
        with pytest.raises(Refused, match=message) as caught:
            find_alterable_topic(context_of(gateway), Named(name, kind))
        assert ErrorCode.INVALID_REQUEST == caught.value.code


@pytest.mark.parametrize(("name", "error"), [("x", UnknownTopic), ("a b", InvalidTopicName)])
async def test_a_topic_that_is_none_cannot_be_altered(name: str, error: type[TopicsError]) -> None:
    async with running_gateway() as gateway:
        topic = await gateway.create_topic("t")
        assert topic is find_alterable_topic(context_of(gateway), Named("t"))
        with pytest.raises(error):
            find_alterable_topic(context_of(gateway), Named(name))


def test_settings_need_a_value_and_stand_once() -> None:
    assert "1" == value_of(Set("a"))
    refuse_repeated_names([Set("a"), Set("b")])
    with pytest.raises(Refused, match="a: expected a value"):
        value_of(Set("a", None))
    with pytest.raises(Refused, match="a: expected once, got 2 times"):
        refuse_repeated_names([Set("a"), Set("b"), Set("a", None)])


@pytest.mark.parametrize(
    ("replace", "expected"),
    [(True, {"flush.ms": "4"}), (False, {"retention.bytes": "2", "flush.ms": "4"})],
)
async def test_alter_topic_replaces_or_adds_and_only_checks_when_asked(
    *, replace: bool, expected: dict[str, str]
) -> None:
    async with running_gateway() as gateway:
        before = {"retention.ms": "1", "retention.bytes": "2"}
        topic = await gateway.create_topic("t", configs=before)
        for validate_only, after in ((True, before), (False, expected)):
            await alter_topic(
                context_of(gateway),
                topic,
                {"retention.ms": None, "flush.ms": "4"},
                replace=replace,
                validate_only=validate_only,
            )
            assert after == topic.configs
