"""The options and columns of `format("kledger")` for writing.

Rule: what is wrong is refused before anything is written, by name. Must not know: Spark, brokers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kledger.batches.compression import Codec
from kledger.security.client.client_security import ClientSecurity
from kledger.spark.source_options import (
    SECURITY,
    InvalidOption,
    is_true,
    known_options,
    security_of,
    servers_of,
)

KNOWN: Final = (
    "servers", "kafka.bootstrap.servers", "topic", "includeHeaders", "kafka.compression.type",
    "kafka.transaction.timeout.ms", "kafka.transactional.id", *SECURITY,
    "checkpointLocation", "queryName",  # of a streaming query, for Spark itself
)  # fmt: skip
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The most that brokers allow by default: all tasks of a write share its time."""
COLUMN_TYPES: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """What a writer was asked for.

    Attributes:
        transactional_id: what the transactional ids of a batch begin with; None for a new one.
    """

    servers: str
    security: ClientSecurity
    topic: str | None
    with_headers: bool
    codec: Codec
    transaction_timeout_ms: int
    transactional_id: str | None


def read_sink_options(given: Mapping[str, str], columns: Mapping[str, str]) -> SinkOptions:
    """Check options and columns.

    Args:
        given: the options.
        columns: names and types, as Spark writes them; others than those of `COLUMN_TYPES` are
            not written.

    Raises:
        InvalidOption: an option or a column is unknown, missing or wrong.
    """
    options = known_options(given, KNOWN)
    for name, allowed in COLUMN_TYPES.items():
        if name in columns and columns[name] not in allowed:
            expected = " or ".join(allowed)
            raise InvalidOption(f"column {name!r}: expected {expected}, got {columns[name]}")
    if "value" not in columns:
        raise InvalidOption(f"column 'value' is missing; there are {', '.join(columns)}")
    if "topic" not in options and "topic" not in columns:
        raise InvalidOption("option 'topic' is missing, and there is no column of that name")
    codec = options.get("kafka.compression.type", "none").upper()
    if codec not in Codec.__members__:
        allowed_codecs = ", ".join(each.lower() for each in Codec.__members__)
        raise InvalidOption(
            f"option 'kafka.compression.type': expected one of {allowed_codecs}, got {codec!r}"
        )
    timeout = options.get("kafka.transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS))
    if not timeout.isdecimal() or int(timeout) == 0:
        raise InvalidOption(
            f"option 'kafka.transaction.timeout.ms': expected milliseconds, got {timeout!r}"
        )
    return SinkOptions(
        servers=servers_of(options),
        security=security_of(options),
        topic=options.get("topic"),
        with_headers=is_true(options, "includeHeaders", default=False),
        codec=Codec[codec],
        transaction_timeout_ms=int(timeout),
        transactional_id=options.get("kafka.transactional.id"),
    )
