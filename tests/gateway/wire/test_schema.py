"""Declarations: slots, defaults, equality, ranges."""

from uuid import UUID

import pytest

from kledger.gateway.wire.messages.k00_produce import LeaderIdAndEpoch, PartitionProduceResponse
from kledger.gateway.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kledger.gateway.wire.schema import (
    ApiMessage,
    Int16,
    Int32,
    Records,
    Struct,
    VersionRange,
    field,
    fields_of,
)


class Inner(Struct):
    number: Int32 = -1


class Outer(ApiMessage, key=7, versions="1-3", flexible="2+"):
    """Every kind of declaration."""

    name: str = "n"
    maybe: str | None = None
    later: Int16 = field(versions="2+", default=5)
    some: list[Inner] | None = field(nullable="2+", default=[])
    inner: Inner = field(default_factory=Inner, tag=0)
    records: Records | None = b""
    raw: bytes = b""
    flag: bool = False
    topic_id: UUID = UUID(int=0)
    numbers: list[Int32] = []


def test_constructor_takes_values_that_differ_from_the_defaults() -> None:
    made = Outer(name="x", numbers=[1])
    assert ("x", None, 5, [], Inner(), [1]) == (
        made.name,
        made.maybe,
        made.later,
        made.some,
        made.inner,
        made.numbers,
    )


def test_mutable_defaults_are_new_objects() -> None:
    one, other = Outer(), Outer()
    one.numbers.append(4)
    one.inner.number = 9
    assert one.some is not None
    one.some.append(Inner())
    assert Outer() == other


def test_unknown_field_and_positional_values_are_refused() -> None:
    with pytest.raises(TypeError, match="nmae"):
        Outer(nmae="x")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Outer("x")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Outer().nmae = "x"  # type: ignore[attr-defined]


def test_equality_is_by_value_and_class() -> None:
    assert Outer(inner=Inner(number=3)) == Outer(inner=Inner(number=3))
    assert Outer(name="a") != Outer(name="b")
    assert HeartbeatRequest() != HeartbeatResponse()
    with pytest.raises(TypeError, match="unhashable"):
        hash(Outer())


def test_repr_reads_like_the_constructor() -> None:
    assert "LeaderIdAndEpoch(leader_id=-1, leader_epoch=4)" == repr(
        LeaderIdAndEpoch(leader_epoch=4)
    )
    assert "current_leader=LeaderIdAndEpoch(" in repr(PartitionProduceResponse())


def test_fields_are_resolved_in_order() -> None:
    fields = {one.name: one for one in fields_of(Outer)}
    assert [
        ("name", "string"), ("maybe", "string"), ("later", "int16"), ("some", "[]Inner"),
        ("inner", "Inner"), ("records", "records"), ("raw", "bytes"), ("flag", "bool"),
        ("topic_id", "uuid"), ("numbers", "[]int32"),
    ] == [(one.name, str(one.type)) for one in fields.values()]  # fmt: skip
    assert fields_of(Outer) is fields_of(Outer)
    assert 3 in fields["maybe"].nullable
    assert 3 not in fields["name"].nullable
    assert (False, True) == (1 in fields["some"].nullable, 2 in fields["some"].nullable)
    assert (0, 5) == (fields["inner"].tag, fields["later"].make_default())


def test_message_knows_its_api() -> None:
    api = Outer.__api__
    assert ("Outer", 7, "1-3") == (api.name, api.key, str(api.versions))
    assert (False, True) == (1 in api.flexible, 2 in api.flexible)


def test_field_without_default_is_a_mistake() -> None:
    class Forgotten(Struct):
        name: str

    with pytest.raises(TypeError, match=r"Forgotten\.name has no default"):
        fields_of(Forgotten)


def test_nullable_range_without_null_in_the_annotation_is_a_mistake() -> None:
    class Contradiction(Struct):
        name: str = field(nullable="3+", default="")

    with pytest.raises(TypeError, match=r"Contradiction\.name is declared nullable"):
        fields_of(Contradiction)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3+", [3, 99], [2]), ("0-7", [0, 7], [8]), ("2", [2], [1, 3]), ("none", [], [0, 1])],
)
def test_version_ranges(text: str, inside: list[int], outside: list[int]) -> None:
    versions = VersionRange.parse(text)
    assert all(one in versions for one in inside)
    assert not any(one in versions for one in outside)
