"""Parsing and refusing values of settings."""

import pytest

from kledger.topics.config.config_values import (
    REPLICAS,
    ConfigType,
    ConfigValue,
    at_least,
    between,
    gzip_level,
    normal_text,
    one_of,
    parse,
    some_of,
)
from kledger.topics.errors import InvalidConfig


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.INT, " +7 ", 7), (ConfigType.LONG, "-9223372036854775808", -(1 << 63)),
        (ConfigType.BOOLEAN, "False", False), (ConfigType.DOUBLE, "1e-3", 0.001),
        (ConfigType.LIST, "a, b", ("a", "b")), (ConfigType.LIST, "", ()),
        (ConfigType.STRING, " x ", "x"),
    ],
)  # fmt: skip
def test_parse(kind: ConfigType, text: str, value: ConfigValue) -> None:
    assert value == parse("name", kind, text, None)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.INT, "2147483648"), (ConfigType.INT, "1" * 100), (ConfigType.INT, "0x7"),
        (ConfigType.INT, "1_000"), (ConfigType.INT, "٣"), (ConfigType.DOUBLE, "much"),
        (ConfigType.BOOLEAN, "1"), (ConfigType.LONG, ""),
    ],
)  # fmt: skip
def test_parse_refuses(kind: ConfigType, text: str) -> None:
    with pytest.raises(
        InvalidConfig,
        match=r"^Invalid value .* for configuration name: (Not a number of type|Expected)",
    ):
        parse("name", kind, text, None)


def test_allowed_values() -> None:
    assert [False, True, True, False] == [between(0, 1).test(v) for v in (-1, 0, 1, 1.5)]
    assert [False, True] == [at_least(3).test(v) for v in (2, 3)]
    assert [True, False] == [one_of("a", "b").test(v) for v in ("a", "c")]
    lists = ((), ("b",), ("b", "b", "a"), ("c",), ("a", ""))
    assert [True, True, True, False, False] == [some_of("a", "b").test(v) for v in lists]
    assert [True, False, True, False] == [gzip_level(v) for v in (-1, 0, 9, 10)]
    assert [True, True, False] == [REPLICAS.test(v) for v in ((), ("1:2",), ("1",))]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1_000, "1000"), (True, "true"), ("X", "X"), ((), ""), (("b", "a", "b"), "b,a")],
)
def test_values_have_one_text(value: ConfigValue, text: str) -> None:
    assert text == normal_text(value)
