"""Random messages for property tests.

One message is drawn with all fields of all versions; `settle` then makes of it what one version
can carry, so that a single example exercises every version of its class.
"""

import copy
from collections.abc import Callable
from functools import cache
from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st

from kledger.gateway.wire.codec import encode
from kledger.gateway.wire.errors import MalformedMessage
from kledger.gateway.wire.schema import ApiMessage, Field, Struct, WireType, fields_of

Parse = Callable[[memoryview, int], object]

INTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
KNOWN_ERRORS = st.integers(-1, 133)


@cache
def message_of(cls: type[ApiMessage], *, is_tame: bool = False) -> st.SearchStrategy[ApiMessage]:
    """Draw messages of a class; tame ones hold only numbers that typed oracles can express."""
    drawn: st.SearchStrategy[ApiMessage] = _struct(cls, is_tame)
    return drawn


def _struct(cls: type[Struct], is_tame: bool) -> st.SearchStrategy[Any]:
    return st.builds(cls, **{one.name: _field(one, is_tame) for one in fields_of(cls)})


def _field(one: Field, is_tame: bool) -> st.SearchStrategy[Any]:
    drawn = _value(one.type, is_tame)
    if is_tame and "error_code" in one.name:
        drawn = KNOWN_ERRORS
    elif is_tame and ("timestamp" in one.name or one.name.endswith("_ms")):
        # Dates end with the year 9999, and a duration in milliseconds is at most so long.
        drawn = st.integers(0, 2**31 - 1)
    if one.nullable.high >= one.nullable.low:
        drawn = st.none() | drawn
    if one.tag is not None:
        drawn = st.builds(one.make_default) | drawn
    return drawn


def _value(kind: WireType, is_tame: bool) -> st.SearchStrategy[Any]:
    if kind.element is not None:
        return st.lists(_value(kind.element, is_tame), max_size=3)
    if kind.struct is not None:
        return _struct(kind.struct, is_tame)
    if kind.name in INTS:
        bits = INTS[kind.name]
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return {
        "uint16": st.integers(0, 2**16 - 1),
        "float64": st.floats(allow_nan=False),
        "bool": st.booleans(),
        "string": st.text(max_size=8) | st.just("long " * 40),
        "bytes": st.binary(max_size=8) | st.just(b"long " * 4000),
        "records": st.binary(max_size=8) | st.just(b"long " * 4000),
        "uuid": st.builds(UUID, int=st.integers(0, 2**128 - 1)),
    }[kind.name]


def settle(message: ApiMessage, version: int) -> ApiMessage:
    """Return a copy that holds what one version can carry, and defaults for the rest."""
    settled = copy.deepcopy(message)
    _settle(settled, version)
    return settled


def _settle(value: Struct, version: int) -> None:
    for one in fields_of(type(value)):
        held = getattr(value, one.name)
        if version not in one.versions:
            setattr(value, one.name, one.make_default())
        elif held is None and version not in one.nullable:
            setattr(value, one.name, _not_null(one))
        elif isinstance(held, Struct):
            _settle(held, version)
        elif isinstance(held, list):
            for item in held:
                if isinstance(item, Struct):
                    _settle(item, version)


def _not_null(one: Field) -> Any:
    if one.type.element is not None:
        return []
    return {"string": "", "bytes": b"", "records": b""}[one.type.name]


def assert_refused_when_cut(cls: type[ApiMessage], version: int, parse: Parse) -> None:
    """Expect that a parser refuses a message cut at any byte, and names message and field."""
    body = encode(settle(sample(cls), version), version)
    for size in range(len(body)):
        with pytest.raises(MalformedMessage) as caught:
            parse(memoryview(body[:size]), version)
        assert (cls.__name__, version) == (caught.value.message, caught.value.version)
        assert caught.value.field != "?"


def sample(cls: type[Struct]) -> Any:
    """Make a message in which no field is at its default and every list has two items."""
    return cls(**{one.name: _sample_value(one.type) for one in fields_of(cls)})


def _sample_value(kind: WireType) -> Any:
    if kind.element is not None:
        return [_sample_value(kind.element) for _ in range(2)]
    if kind.struct is not None:
        return sample(kind.struct)
    if kind.name in INTS:
        return 77
    if kind.name == "uint16":
        return 50_000
    if kind.name == "float64":
        return 2.5
    return {
        "bool": True,
        "string": "té",
        "bytes": b"by",
        "records": b"rec",
        "uuid": UUID(int=2**100 + 5),
    }[kind.name]
