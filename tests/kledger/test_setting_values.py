"""From text and TOML to typed values, and what the errors say."""

import math
from typing import Any, Literal

import pytest

from kledger.setting_values import (
    OptionTable,
    SettingError,
    check_range,
    convert,
    joined_address,
    split_address,
)

Mode = Literal["fsync", "os"]


@pytest.mark.parametrize(
    ("kind", "value", "converted"),
    [
        (int, "12", 12),
        (int, "-1", -1),
        (int, 12, 12),
        (bool, "true", True),
        (bool, "False", False),
        (bool, True, True),
        (str, "x", "x"),
        (str, "", ""),
        (Mode, "os", "os"),
        (str | None, "", None),
        (str | None, "none", None),
        (str | None, "x", "x"),
        (int | None, "7", 7),
        (float, "1.5e6", 1_500_000.0),
        (float, 2, 2.0),
        (float, "inf", math.inf),
        (tuple[str, ...], "", ()),
        (tuple[str, ...], "a, b.c", ("a", "b.c")),
        (tuple[str, ...], ["a", "b.c"], ("a", "b.c")),
        (OptionTable, "", OptionTable()),
        (OptionTable, "a=1, b = x=y", OptionTable(a="1", b="x=y")),
        (OptionTable, {"a": True, "b": 2}, OptionTable(a=True, b=2)),
    ],
)
def test_convert_gives_the_type_of_the_field(kind: Any, value: object, converted: object) -> None:
    result = convert("a.b", kind, value)
    assert (converted, type(converted)) == (result, type(result))


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (float, "x", "a.b: expected a number above 0, got 'x'"),
        (float, 0, "a.b: expected a number above 0, got 0"),
        (float, "nan", "a.b: expected a number above 0, got 'nan'"),
        (float, True, "a.b: expected a number above 0, got True"),
        (float, [1], "a.b: expected a number above 0, got [1]"),
        (int, "x", "a.b: expected a whole number, got 'x'"),
        (int, "", "a.b: expected a whole number, got ''"),
        (int, "1.5", "a.b: expected a whole number, got '1.5'"),
        (int, "٣", "a.b: expected a whole number, got '٣'"),
        (int, "9" * 5000, None),
        (int, True, "a.b: expected a whole number, got True"),
        (int, [1], "a.b: expected a whole number, got [1]"),
        (bool, "yes", "a.b: expected true or false, got 'yes'"),
        (bool, 1, "a.b: expected true or false, got 1"),
        (str, 5, "a.b: expected text, got 5"),
        (tuple[str, ...], [1], "a.b: expected a list of texts, got [1]"),
        (tuple[str, ...], 1, "a.b: expected a list of texts, got 1"),
        (Mode, "never", "a.b: expected fsync or os, got 'never'"),
        (Literal["", "x"], "y", "a.b: expected nothing or x, got 'y'"),
    ],
)
def test_convert_error_names_setting_expected_and_got(
    kind: Any, value: object, message: str | None
) -> None:
    with pytest.raises(SettingError) as caught:
        convert("a.b", kind, value)
    assert message is None or message == str(caught.value)


def test_check_range_refuses_what_is_outside() -> None:
    check_range("a.b", 1, 1, 3)
    check_range("a.b", "text has no range", 1, 3)
    with pytest.raises(SettingError, match=r"a.b: expected a whole number from 1 to 3, got 4"):
        check_range("a.b", 4, 1, 3)


@pytest.mark.parametrize(
    ("text", "address"),
    [("h:0", ("h", 0)), ("127.0.0.1:9092", ("127.0.0.1", 9092)), ("[::1]:65535", ("::1", 65535))],
)
def test_split_address(text: str, address: tuple[str, int]) -> None:
    assert address == split_address("a", text)
    assert address == split_address("a", joined_address(*address))


@pytest.mark.parametrize("text", ["", "h", "h:", ":9092", "h:x", "h:65536", "h:-1", "h:1 "])
def test_split_address_refuses(text: str) -> None:
    with pytest.raises(SettingError, match="expected HOST:PORT"):
        split_address("server.kafka", text)


@pytest.mark.parametrize("value", ["secret", "=secret", {"a": None}, {"a": ["secret"]}, 7])
def test_bad_options_are_refused_without_their_values(value: object) -> None:
    with pytest.raises(SettingError, match=r"offload\.options: expected a table") as caught:
        convert("offload.options", OptionTable, value)
    assert "secret" not in str(caught.value)
