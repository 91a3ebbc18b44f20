"""The options of a pipeline: one class of fields is its flags, its mapping and its help.

Rule: a value is checked before Spark starts anything; a wrong one is a WrongCall that says which
option, what was expected and what it got. Must not know: what a pipeline does with its options.
"""

import argparse
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from pipelines.errors import WrongCall

EVERY_S: Final = 10.0
SOURCES: Final = ("kafka", "kledger")

_UNIT_MS: Final = {
    "millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000,
    "day": 86_400_000, "week": 604_800_000,
}  # fmt: skip
_DURATION: Final = re.compile(r"(?:\s*\d+\s+[a-z]+)+\s*")
_DURATION_PART: Final = re.compile(r"(\d+)\s+([a-z]+)")
_NO_DEFAULT: Final = dataclasses.MISSING

O = TypeVar("O", bound="SourceOptions")  # noqa: E741 - options


class Flag(NamedTuple):
    """What a field says about its flag: its help, how text becomes its value, what it may be."""

    help: str
    parse: Callable[[Any], Any]
    choices: tuple[str, ...]


def flag(
    help_text: str,
    *,
    default: Any = _NO_DEFAULT,
    parse: Callable[[Any], Any] = str,
    choices: tuple[str, ...] = (),
) -> Any:
    """Return a field of a class of options; without `default` it is required."""
    metadata = {"flag": Flag(help_text, parse, choices)}
    if default is _NO_DEFAULT:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def positive(value: object) -> int:
    """Return a whole number above 0.

    Raises:
        ValueError: it is none.
    """
    text = str(value)
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"expected a whole number above 0, got {value!r}")
    return int(text)


def seconds(value: object) -> float:
    """Return a time in seconds, above 0.

    Raises:
        ValueError: it is none.
    """
    try:
        number = float(str(value))
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise ValueError(f"expected seconds above 0, got {value!r}")
    return number


def milliseconds(value: object) -> int:
    """Return a time in milliseconds since 1970.

    Raises:
        ValueError: it is none.
    """
    text = str(value)
    if not text.isdecimal():
        raise ValueError(f"expected milliseconds since 1970, got {value!r}")
    return int(text)


def duration(value: object) -> str:
    """Return a duration as Spark writes it, such as `5 minutes` or `1 hour 30 minutes`.

    Raises:
        ValueError: it is none.
    """
    duration_ms(value)
    return str(value)


def duration_ms(value: object) -> int:
    """Return how long a duration is.

    Raises:
        ValueError: the text is none, or it is 0.
    """
    text = str(value).lower()
    parts = _DURATION_PART.findall(text) if _DURATION.fullmatch(text) else []
    units = [unit.removesuffix("s") for _, unit in parts]
    if not parts or any(unit not in _UNIT_MS for unit in units):
        raise ValueError(f"expected a duration such as '5 minutes', got {value!r}")
    total = sum(int(part[0]) * _UNIT_MS[unit] for part, unit in zip(parts, units, strict=True))
    if total == 0:
        raise ValueError(f"expected a duration above 0, got {value!r}")
    return total


def source_options(value: object) -> dict[str, str]:
    """Return options for Spark's source, from a mapping or from texts `KEY=VALUE`.

    Raises:
        ValueError: a text has no `=`.
    """
    if isinstance(value, Mapping):
        return {str(key): str(each) for key, each in value.items()}
    assert isinstance(value, Sequence)
    texts = [value] if isinstance(value, str) else [str(each) for each in value]
    wrong = [text for text in texts if "=" not in text]
    if wrong:
        raise ValueError(f"expected KEY=VALUE, got {wrong[0]!r}")
    pairs = (text.partition("=") for text in texts)
    return {key: rest for key, _, rest in pairs}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What every pipeline takes."""

    servers: str = flag("HOST:PORT of Kafka listeners, separated by commas")
    topic: str = flag("the topic")
    source: str = flag("the Spark source that reads topics", default="kafka", choices=SOURCES)
    option: dict[str, str] = flag(
        "a further option KEY=VALUE of the Spark source; those of TLS and logins, such as"
        " kafka.security.protocol=SSL, are for all connections; may be repeated",
        default=(),
        parse=source_options,
    )
    bad_records: str | None = flag(
        "a folder for records that cannot be used, as Parquet with their offset and the reason",
        default=None,
    )
    metrics: str | None = flag(
        "a file that is kept up to date with metrics in the text format of Prometheus", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions(SourceOptions):
    """What every pipeline over a stream takes."""

    checkpoint: str = flag("the folder in which Spark keeps how far the pipeline is")
    available_now: bool = flag("read what is there, then end", default=False, parse=bool)
    every: float | None = flag(
        f"seconds between two micro-batches ({EVERY_S:.0f})", default=None, parse=seconds
    )
    max_offsets_per_trigger: int | None = flag(
        "the most offsets in a micro-batch (as many as have about 256 MiB)",
        default=None,
        parse=positive,
    )

    def checkpoint_of(self, query: str) -> str:
        """Return the folder of a query's checkpoint; the main query has the name ""."""
        return "/".join(filter(None, (self.checkpoint.rstrip("/"), query)))

    @property
    def trigger(self) -> dict[str, Any]:
        """The arguments of Spark's `trigger`."""
        if self.available_now:
            return {"availableNow": True}
        return {"processingTime": f"{int((self.every or EVERY_S) * 1000)} milliseconds"}


def read_options(options_class: type[O], given: Mapping[str, object]) -> O:
    """Check options by the names of the flags, with underscores (`from` for `--from`).

    Raises:
        WrongCall: an option is unknown, missing, or has a wrong value.
    """
    fields = {_key(each): each for each in dataclasses.fields(options_class)}
    unknown = sorted(given.keys() - fields.keys())
    if unknown:
        known = ", ".join(sorted(fields))
        raise WrongCall(f"unknown option {unknown[0]!r}; known are {known}")
    values: dict[str, Any] = {}
    for key, each in fields.items():
        value = given.get(key)
        if value is None:
            if each.default is _NO_DEFAULT:
                raise WrongCall(f"option {key!r} is missing")
            value = each.default
            values[each.name] = {} if value == () else value
        else:
            values[each.name] = _parsed(key, each.metadata["flag"], value)
    if values.get("available_now") and values.get("every") is not None:
        raise WrongCall("options 'available_now' and 'every' exclude each other")
    return options_class(**values)


def _parsed(key: str, declared: Flag, value: object) -> Any:
    try:
        parsed = declared.parse(value)
    except ValueError as error:
        raise WrongCall(f"option {key!r}: {error}") from None
    if declared.choices and parsed not in declared.choices:
        allowed = " or ".join(declared.choices)
        raise WrongCall(f"option {key!r}: expected {allowed}, got {value!r}")
    return parsed


def add_flags(parser: argparse.ArgumentParser, options_class: type[SourceOptions]) -> None:
    """Declare the flags of a class of options; their values stay texts, absent ones None."""
    for each in dataclasses.fields(options_class):
        declared: Flag = each.metadata["flag"]
        name, key = "--" + _key(each).replace("_", "-"), _key(each)
        if declared.parse is bool:
            parser.add_argument(
                name, dest=key, action="store_true", default=None, help=declared.help
            )
        elif declared.parse is source_options:
            parser.add_argument(
                name, dest=key, action="append", metavar="KEY=VALUE", help=declared.help
            )
        else:
            parser.add_argument(
                name,
                dest=key,
                required=each.default is _NO_DEFAULT,
                metavar="|".join(declared.choices) or key.upper(),
                help=declared.help,
            )


def _key(each: "dataclasses.Field[Any]") -> str:
    return each.name.removesuffix("_")
