"""The options of `format("kledger")` for reading, under the names of Spark's kafka source.

Rule: everything that can be wrong without asking a broker is refused here, by name, with what is
known or allowed. Names are compared without case, as Spark's own are.
Must not know: brokers, Spark.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kledger.security.client.client_properties import PROPERTIES, read_client_security
from kledger.security.client.client_security import INSECURE, ClientSecurity
from kledger.spark.offset_range import EARLIEST, LATEST, KafkaPartition, Offsets

KAFKA: Final = "kafka."
"""Options with this prefix are properties of Kafka's clients."""
SECURITY: Final = tuple(f"{KAFKA}{name}" for name in PROPERTIES)
"""Options of TLS and logins, for reading and writing."""
STORAGE: Final = "storage."
"""Options with this prefix are those of the object store's library."""
COMMON: Final = (
    "path", "servers", "kafka.bootstrap.servers", "mode", "subscribe", "subscribePattern", "assign",
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "minPartitions", "failOnDataLoss", "includeHeaders",
    "kafka.isolation.level", *SECURITY,
)  # fmt: skip
OF_BATCHES: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
OF_STREAMS: Final = ("maxOffsetsPerTrigger",)
KNOWN: Final = (*COMMON, *OF_BATCHES, *OF_STREAMS)
_STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")


class InvalidOption(ValueError):
    """An option is unknown, missing or has a wrong value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where a read starts or ends: everywhere the same, or for each partition.

    Attributes:
        kind: `offsets` (numbers are offsets, or -2 and -1), or `times` (milliseconds since 1970).
        everywhere: the number for every partition, None with `each`.
        each: the numbers by partition.
    """

    kind: Literal["offsets", "times"]
    everywhere: int | None = None
    each: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TierLocation:
    """Where a tier is, and the options of the library that reads it."""

    url: str
    options: dict[str, str] = field(default_factory=dict, repr=False)  # has secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a reader was asked for.

    Attributes:
        servers: of brokers, empty in mode `direct`.
        security: with what connections to them begin.
        tier: in mode `direct`, else None.
    """

    servers: str = ""
    security: ClientSecurity = INSECURE
    tier: TierLocation | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[KafkaPartition, ...] = ()
    start: Bound | None = None
    end: Bound
    is_latest_without_match: bool = False
    partitions_min: int | None = None
    offsets_per_trigger_max: int | None = None
    fails_on_data_loss: bool = True
    with_headers: bool = False
    is_committed: bool = True


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Check options and return what they mean.

    Raises:
        InvalidOption: one is unknown, missing or wrong.
    """
    storage = {name: value for name, value in given.items() if name.lower().startswith(STORAGE)}
    options = known_options({name: given[name] for name in given if name not in storage}, KNOWN)
    tier = _tier(options, storage)
    chosen = [name for name in _STRATEGIES if name in options]
    if len(chosen) != 1:
        got = " and ".join(chosen) or "none"
        raise InvalidOption(f"expected one of the options {', '.join(_STRATEGIES)}, got {got}")
    return SourceOptions(
        servers=servers_of(options) if tier is None else "",
        security=security_of(options) if tier is None else INSECURE,
        tier=tier,
        topics=_topics(options),
        pattern=options.get("subscribePattern"),
        assigned=_assigned(options),
        start=_bound(options, "starting", default=None),
        end=_bound(options, "ending", default=LATEST) or Bound(kind="offsets", everywhere=LATEST),
        is_latest_without_match=_one_of(
            options, "startingOffsetsByTimestampStrategy", ("error", "latest")
        )
        == "latest",
        partitions_min=_positive(options, "minPartitions"),
        offsets_per_trigger_max=_positive(options, "maxOffsetsPerTrigger"),
        fails_on_data_loss=is_true(options, "failOnDataLoss", default=True),
        with_headers=is_true(options, "includeHeaders", default=False),
        is_committed=_one_of(
            options, "kafka.isolation.level", ("read_committed", "read_uncommitted")
        )
        == "read_committed",
    )


def _tier(options: Mapping[str, str], storage: Mapping[str, str]) -> TierLocation | None:
    """Return where to read objects in mode `direct`; None in mode `broker`."""
    if _one_of(options, "mode", ("broker", "direct")) == "broker":
        given = sorted(storage) + (["path"] if "path" in options else [])
        if given:
            raise InvalidOption(f"option {given[0]!r} is for mode=direct")
        return None
    if "path" not in options:
        raise InvalidOption("option 'path' is missing: the server's offload.url")
    length = len(STORAGE)
    return TierLocation(options["path"], {name[length:]: storage[name] for name in storage})


def known_options(given: Mapping[str, str], known: tuple[str, ...]) -> dict[str, str]:
    """Return options under the spelling that is documented.

    Raises:
        InvalidOption: one is unknown; the message lists the known ones.
    """
    spelled = {name.lower(): name for name in known}
    unknown = sorted(name for name in given if name.lower() not in spelled)
    if unknown:
        raise InvalidOption(
            f"unknown option {unknown[0]!r}; the known ones are {', '.join(sorted(known))}"
        )
    return {spelled[name.lower()]: value for name, value in given.items()}


def servers_of(options: Mapping[str, str]) -> str:
    """Return the addresses, under either name of the option.

    Raises:
        InvalidOption: there are none.
    """
    servers = options.get("servers") or options.get("kafka.bootstrap.servers")
    if not servers:
        raise InvalidOption("option 'servers' is missing: HOST:PORT, separated by commas")
    return servers


def security_of(options: Mapping[str, str]) -> ClientSecurity:
    """Return what connections begin with, and read the files that options name.

    Args:
        options: under the spelling that is documented; others than SECURITY are skipped.

    Raises:
        InvalidOption: one cannot work.
    """
    given = {name.removeprefix(KAFKA): options[name] for name in SECURITY if name in options}
    try:
        return read_client_security(given)
    except ValueError as error:
        raise InvalidOption(f"option {KAFKA}{error}") from None


def is_true(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return an option that is true or false.

    Raises:
        InvalidOption: it is neither.
    """
    text = options.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise InvalidOption(f"option {name!r}: expected true or false, got {options[name]!r}")
    return text == "true"


def _one_of(options: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = options.get(name, allowed[0])
    if value not in allowed:
        raise InvalidOption(f"option {name!r}: expected {' or '.join(allowed)}, got {value!r}")
    return value


def _positive(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if not value.isdecimal() or int(value) == 0:
        raise InvalidOption(f"option {name!r}: expected a number above 0, got {value!r}")
    return int(value)


def _topics(options: Mapping[str, str]) -> tuple[str, ...]:
    if "subscribe" not in options:
        return ()
    topics = tuple(name.strip() for name in options["subscribe"].split(",") if name.strip())
    if not topics:
        raise InvalidOption("option 'subscribe': expected topics separated by commas, got none")
    return topics


def _assigned(options: Mapping[str, str]) -> tuple[KafkaPartition, ...]:
    if "assign" not in options:
        return ()
    parsed = _json("assign", options["assign"])
    try:
        found = tuple(
            KafkaPartition(str(topic), int(partition))
            for topic, partitions in parsed.items()
            for partition in partitions
        )
    except (AttributeError, TypeError, ValueError):
        raise _wrong_form("assign", '{"topic": [0, 1]}', options["assign"]) from None
    if not found:
        raise InvalidOption("option 'assign': expected partitions, got none")
    return found


def _bound(options: Mapping[str, str], which: str, *, default: int | None) -> Bound | None:
    """Read one end; a timestamp for all goes before those by partition, both before offsets.

    Source: Spark's KafkaSourceProvider.getKafkaOffsetRangeLimit, which has the same precedence.
    """
    timestamp = f"{which}Timestamp"
    if timestamp in options:
        text = options[timestamp]
        if not text.isdecimal():
            raise InvalidOption(f"option {timestamp!r}: expected milliseconds, got {text!r}")
        return Bound(kind="times", everywhere=int(text))
    by_timestamp = f"{which}OffsetsByTimestamp"
    if by_timestamp in options:
        return Bound(kind="times", each=parse_offsets(by_timestamp, options[by_timestamp]))
    name = f"{which}Offsets"
    text = options.get(name, "")
    special = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    if which == "ending" and special == EARLIEST:
        raise InvalidOption("option 'endingOffsets': expected latest or offsets, got 'earliest'")
    if special is not None:
        return Bound(kind="offsets", everywhere=special)
    if not text:
        return None if default is None else Bound(kind="offsets", everywhere=default)
    each = parse_offsets(name, text)
    least = EARLIEST if which == "starting" else LATEST
    wrong = [where for where, offset in each.items() if offset < least]
    if wrong:
        raise InvalidOption(
            f"option {name!r}: offset {each[wrong[0]]} of {wrong[0]}, expected at least {least}"
        )
    return Bound(kind="offsets", each=each)


def parse_offsets(name: str, text: str) -> Offsets:
    """Read `{"topic": {"0": 42}}`.

    Raises:
        InvalidOption: the text has another form; `name` is the option.
    """
    parsed = _json(name, text)
    try:
        return {
            KafkaPartition(str(topic), int(partition)): _whole(offset)
            for topic, partitions in parsed.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise _wrong_form(name, '{"topic": {"0": 42}}', text) from None


def offsets_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets in the form of Spark's kafka source, as an object for JSON."""
    found: dict[str, dict[str, int]] = {}
    for where, offset in sorted(offsets.items()):
        found.setdefault(where.topic, {})[str(where.partition)] = offset
    return found


def offsets_of(parsed: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Undo `offsets_json`."""
    return {
        KafkaPartition(topic, int(partition)): offset
        for topic, partitions in parsed.items()
        for partition, offset in partitions.items()
    }


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidOption(f"option {name!r}: expected JSON, got {text!r}") from None


def _whole(value: object) -> int:
    if not isinstance(value, int | str) or isinstance(value, bool):
        raise TypeError(value)
    return int(value)


def _wrong_form(name: str, form: str, text: str) -> InvalidOption:
    return InvalidOption(f"option {name!r}: expected {form}, got {text!r}")
