"""Kinds of configuration value: how a text becomes a value, and which values are allowed.

Rule: parsing is as lenient as Apache Kafka's (blanks around, any case for booleans), refusing is
as strict; every refusal names the setting, the expected and the actual value, in Kafka's words.
Must not know: which settings exist.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kledger.topics.errors import InvalidConfig

ConfigValue = int | float | bool | str | tuple[str, ...]
SHORT_MAX = (1 << 15) - 1
INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
DIGITS_MAX = 20
"""Of a number, with its sign."""
SHOWN_MAX = 200
"""Characters of a bad value that the error message repeats."""


class ConfigType(Enum):
    """The types that Kafka reports for a setting."""

    BOOLEAN = "boolean"
    STRING = "string"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"
    SHORT = "short"
    CLASS = "class"
    PASSWORD = "password"  # noqa: S105 (the name of a type)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which values are allowed, and the texts about that.

    Attributes:
        description: for documentation.
        requirement: for error messages; a sentence in Kafka's words, without its full stop.
    """

    description: str
    test: Callable[[ConfigValue], bool]
    requirement: str = ""

    @property
    def refusal(self) -> str:
        """The error message for a value that is not allowed."""
        return self.requirement or f"Value must be {self.description}"


def between(low: float, high: float) -> Allowed:
    """Numbers from `low` to `high`, both included."""
    return Allowed(
        f"{low} to {high}",
        lambda value: isinstance(value, int | float) and low <= value <= high,
        f"Value must be at least {low} and no more than {high}",
    )


def at_least(low: int) -> Allowed:
    """Numbers from `low` on."""
    return Allowed(f"at least {low}", lambda value: isinstance(value, int) and value >= low)


def one_of(*words: str) -> Allowed:
    """Exactly one of the words."""
    listed = ", ".join(words)
    return Allowed(
        f"one of {listed}", lambda value: value in words, f"String must be one of: {listed}"
    )


def some_of(*words: str) -> Allowed:
    """A list of the words; it may be empty, and duplicates count once."""
    return Allowed(
        "a list of " + ", ".join(words),
        lambda value: isinstance(value, tuple) and set(value) <= set(words),
    )


def gzip_level(value: ConfigValue) -> bool:
    """Whether the value is a level of gzip: 1 to 9, or -1 for the library's choice."""
    return isinstance(value, int) and (value == -1 or 1 <= value <= 9)


_REPLICA = re.compile(r"[0-9]+:[0-9]+")


def _replicas(value: ConfigValue) -> bool:
    if not isinstance(value, tuple):
        return False
    return value in ((), ("*",)) or all(_REPLICA.fullmatch(part.strip()) for part in value)


REPLICAS = Allowed("empty, * or partition:node,partition:node,…", _replicas)


def parse(name: str, kind: ConfigType, text: str, allowed: Allowed | None) -> ConfigValue:
    """Turn the text of a setting into its value.

    Raises:
        InvalidConfig: the text is not of that type, or the value is not allowed.
    """
    value = _convert(name, kind, text.strip())
    if allowed is not None and not allowed.test(value):
        raise _invalid(name, text.strip(), allowed.refusal)
    return value


def normal_text(value: ConfigValue) -> str:
    """Return the text of a value as Apache Kafka writes it; a list without duplicates."""
    if isinstance(value, tuple):
        return ",".join(dict.fromkeys(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _convert(name: str, kind: ConfigType, text: str) -> ConfigValue:
    match kind:
        case ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise _invalid(name, text, "Expected value to be either true or false")
            return text.lower() == "true"
        case ConfigType.SHORT:
            return _integer(name, kind, text, SHORT_MAX)
        case ConfigType.INT:
            return _integer(name, kind, text, INT_MAX)
        case ConfigType.LONG:
            return _integer(name, kind, text, LONG_MAX)
        case ConfigType.DOUBLE:
            return _real(name, text)
        case ConfigType.LIST:
            return tuple(part.strip() for part in text.split(",")) if text else ()
        case ConfigType.STRING | ConfigType.CLASS | ConfigType.PASSWORD:
            return text


def _integer(name: str, kind: ConfigType, text: str, largest: int) -> int:
    if re.fullmatch(r"[+-]?[0-9]+", text) and len(text) <= DIGITS_MAX:
        value = int(text)
        if -largest - 1 <= value <= largest:
            return value
    raise _invalid(name, text, f"Not a number of type {kind.name}")


def _real(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _invalid(name, text, "Not a number of type DOUBLE") from None


def _invalid(name: str, text: str, why: str) -> InvalidConfig:
    return InvalidConfig(f"Invalid value {text[:SHOWN_MAX]} for configuration {name}: {why}")
