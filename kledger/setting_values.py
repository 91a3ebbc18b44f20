"""Values of settings: from text or TOML to the type of a dataclass field, with its limits.

Rule: a value is of the field's type and inside its limits, or the error names the setting, what was
expected and the value.
Must not know: files, the environment, the use of a setting.
"""

import types
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, Union, get_args, get_origin

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class ConfigText(str):
    """The type of a topic setting: any TOML value as text, which the topic's own check parses."""

    __slots__ = ()


class OptionTable(dict[str, bool | int | float | str]):
    """The type of a table of options that this program passes on; values are never in messages."""

    __slots__ = ()


class SettingError(ValueError):
    """A setting that does not exist, or a value that cannot work; the message is for the user."""


def convert(name: str, kind: Any, value: object) -> Any:
    """Turn `value`, as it came from TOML or as text, into `kind`.

    Args:
        name: the setting, for the error.
        kind: the type of the field: int, bool, str or a class of secret texts, ConfigText, a class
            of tables such as OptionTable, tuple[str, ...], a Literal of strings, or one of them |
            None.
        value: text of the environment or the command line, or a TOML value.

    Raises:
        SettingError: the value is not of that type.
    """
    if get_origin(kind) in (Union, types.UnionType):
        if value is None or value in ("", "none"):
            return None
        (kind,) = (each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
        raise expected(name, " or ".join(each or "nothing" for each in get_args(kind)), value)
    if get_origin(kind) is tuple:
        return _words(name, value)
    if issubclass(kind, dict):
        return kind(_options(name, value))
    if kind is bool:
        return _boolean(name, value)
    if kind is int:
        return _whole_number(name, value)
    if kind is float:
        return _number(name, value)
    if kind is ConfigText and isinstance(value, bool | int | str):
        return str(value).lower() if isinstance(value, bool) else str(value)
    assert issubclass(kind, str), f"{name}: no conversion to {kind}"
    if isinstance(value, str):
        return value if kind is ConfigText else kind(value)
    if kind not in (str, ConfigText):
        raise SettingError(f"{name}: expected text")  # the value is a secret
    raise expected(name, "text", value)


def expected(name: str, wanted: str, value: object) -> SettingError:
    """Make the error about a value, in the form that all have."""
    return SettingError(f"{name}: expected {wanted}, got {value!r}")


def check_range(name: str, value: object, low: int, high: int) -> None:
    """Refuse a number outside low..high.

    Raises:
        SettingError: it is outside.
    """
    if isinstance(value, int) and not isinstance(value, bool) and not low <= value <= high:
        raise expected(name, f"a whole number from {low} to {high}", value)


def _boolean(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    raise expected(name, "true or false", value)


def _words(name: str, value: object) -> tuple[str, ...]:
    """Read a list: of TOML, or text with commas."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",")) if value.strip() else ()
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise expected(name, "a list of texts", value)


def _options(name: str, value: object) -> OptionTable:
    """Read a table of TOML, or `option=value,option=value`."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if all(option.strip() and equals for option, equals, _ in pairs):
            return OptionTable({option.strip(): text.strip() for option, _, text in pairs})
    elif isinstance(value, Mapping) and all(
        isinstance(option, str) and isinstance(each, bool | int | float | str)
        for option, each in value.items()
    ):
        return OptionTable(value)
    # The value may have a secret in it.
    raise SettingError(
        f"{name}: expected a table of texts, numbers and booleans, or OPTION=VALUE,…"
    )


def _whole_number(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.removeprefix("-").isascii():
        digits = value.removeprefix("-")
        if digits.isdigit() and len(digits) <= 19:
            return int(value)
    raise expected(name, "a whole number", value)


def _number(name: str, value: object) -> float:
    """Read a number above 0."""
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            if (found := float(value)) > 0:
                return found
    raise expected(name, "a number above 0", value)


def split_address(name: str, value: str) -> tuple[str, int]:
    """Split `host:port` or `[v6]:port`.

    Raises:
        SettingError: it is not of that form, or the port is not one.
    """
    host, colon, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise expected(name, "HOST:PORT with a port from 0 to 65535", value)
    return host, int(port)


def joined_address(host: str, port: int) -> str:
    """Return the text that `split_address` splits."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
