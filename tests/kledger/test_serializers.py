"""What a serializer writes its deserializer reads; values and data of another kind are refused."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kledger.serializers import from_json, from_msgpack, to_json, to_msgpack

VALUES = [None, True, 7, -1, 1.5, "é", [1, [2]], {"a": {"b": None}}, 1 << 40]
PAIRS = [(to_json, from_json), (to_msgpack, from_msgpack)]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("serialize", "deserialize"), PAIRS)
def test_values_come_back(
    serialize: Callable[[Any], bytes], deserialize: Callable[[bytes], Any], value: Any
) -> None:
    assert value == deserialize(serialize(value))


def test_msgpack_has_bytes_and_keys_that_are_numbers() -> None:
    assert {1: b"\xff"} == from_msgpack(to_msgpack({1: b"\xff"}))


@pytest.mark.parametrize(("serialize", "deserialize"), PAIRS)
def test_what_is_not_in_the_format_is_refused(
    serialize: Callable[[Any], bytes], deserialize: Callable[[bytes], Any]
) -> None:
    with pytest.raises(TypeError):
        serialize(object())
    with pytest.raises(ValueError, match=r"incomplete|Expecting"):
        deserialize(serialize([1, 2, 3])[:-1])


def test_msgpack_is_loaded_only_when_it_is_used() -> None:
    program = "import sys, kledger.serializers; sys.exit('msgpack' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
