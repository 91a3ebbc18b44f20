"""Every declaration against Kafka's own, and round trips of every message and version."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.schema import ApiMessage, Field, Struct, WireType, fields_of
from tests.gateway.wire.facts import (
    STEMS,
    UNSTABLE,
    bounds,
    default_of,
    definition,
    holds,
    messages,
    snake,
    versions,
)
from tests.gateway.wire.random_messages import message_of, settle

quick = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
every_message = pytest.mark.parametrize("cls", messages(), ids=lambda cls: cls.__name__)

Row = tuple[str, str, bool, int | None, Any]


def facts_rows(
    fields: list[dict[str, Any]], version: int, shared: list[dict[str, Any]], path: str = ""
) -> list[Row]:
    """Flatten what the file says about one version, in wire order.

    Args:
        fields: of a message or of a struct in it.
        version: of the message.
        shared: structs of the message that are defined apart from their fields.
        path: names of the structs around.
    """
    by_name = {one["name"]: one["fields"] for one in shared}
    rows: list[Row] = []
    for one in fields:
        if not holds(one["versions"], version):
            continue
        name = path + snake(one["name"])
        is_nullable = holds(one.get("nullableVersions", "none"), version)
        rows.append((name, one["type"], is_nullable, one.get("tag"), default_of(one)))
        inner = one.get("fields") or by_name.get(one["type"].removeprefix("[]"), [])
        rows += facts_rows(inner, version, shared, name + ".")
    return rows


def our_rows(cls: type[Struct], version: int, path: str = "") -> list[Row]:
    """Flatten what we declare about one version, in wire order."""
    rows: list[Row] = []
    for one in fields_of(cls):
        if version not in one.versions:
            continue
        name = path + one.name
        rows.append((name, str(one.type), version in one.nullable, one.tag, our_default(one)))
        inner = innermost(one.type).struct
        rows += our_rows(inner, version, name + ".") if inner else []
    return rows


def our_default(one: Field) -> Any:
    if one.default is list:
        return []
    return "fresh" if one.is_fresh else one.default


def innermost(kind: WireType) -> WireType:
    return innermost(kind.element) if kind.element else kind


@every_message
def test_fields_are_those_of_kafka(cls: type[ApiMessage]) -> None:
    facts = definition(cls)
    shared = facts.get("commonStructs", [])
    for version in versions(cls):
        assert facts_rows(facts["fields"], version, shared) == our_rows(cls, version), version


@every_message
def test_key_and_versions_are_those_of_kafka(cls: type[ApiMessage]) -> None:
    facts, api = definition(cls), cls.__api__
    low, high = bounds(facts["validVersions"])
    unstable = UNSTABLE.get(api.key)
    assert (facts["apiKey"], facts["name"]) == (api.key, api.name)
    assert (low, high if unstable is None else unstable - 1) == (
        api.versions.low,
        api.versions.high,
    )
    for version in versions(cls):
        assert holds(facts["flexibleVersions"], version) == (version in api.flexible)


@every_message
def test_no_field_is_declared_for_no_version(cls: type[ApiMessage]) -> None:
    declared = {name for version in versions(cls) for name, *_ in our_rows(cls, version)}
    assert declared == set(every_path(cls))


def every_path(cls: type[Struct], path: str = "") -> list[str]:
    found = []
    for one in fields_of(cls):
        found.append(path + one.name)
        inner = innermost(one.type).struct
        found += every_path(inner, path + one.name + ".") if inner else []
    return found


def test_unstable_versions_are_marked_so_by_kafka() -> None:
    marked = {
        one.__api__.key: bounds(definition(one)["validVersions"])[1]
        for one in messages()
        if definition(one).get("latestVersionUnstable")
    }
    assert UNSTABLE == marked


def test_module_names_are_those_of_the_apis() -> None:
    for key, stem in STEMS.items():
        (request,) = (
            one for one in messages() if one.__api__.key == key and one.__name__.endswith("Request")
        )
        assert stem == snake(request.__name__.removesuffix("Request"))


@every_message
def test_defaults_of_a_new_instance(cls: type[ApiMessage]) -> None:
    one, other = cls(), cls()
    assert one == other
    for field in fields_of(cls):
        held = getattr(one, field.name)
        assert field.make_default() == held
        if field.is_fresh:
            assert held is not getattr(other, field.name)


@every_message
@quick
@given(data=st.data())
def test_round_trip_in_every_version(cls: type[ApiMessage], data: st.DataObject) -> None:
    drawn = data.draw(message_of(cls))
    for version in versions(cls):
        settled = settle(drawn, version)
        body = encode(settled, version)
        read = decode(cls, version, memoryview(b"head" + body), 4)
        assert settled == read
        assert body == encode(read, version)
