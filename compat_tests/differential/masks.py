"""Masks: an answer as plain values, without what no two servers have in common.

Rule: an id becomes its kind and a number in the order of first occurrence, so that a repeated id
and a changed one still show. A time of this run becomes `now`, an address `here`; of a message only
the key words that scripts search for remain. Elements of a list are identified by their names.
Must not know: requests, which server answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from compat_tests.differential.connection import Closed, Silent
from kledger.batches.header import BatchHeader, verify_checksum
from kledger.batches.reader import iterate_batches, iterate_records
from kledger.gateway.wire.schema import ApiMessage, Struct, fields_of

Plain = Any
KINDS: Final = {
    "topic_id": "topic",
    "producer_id": "producer",
    "member_id": "member",
    "leader": "member",
    "cluster_id": "cluster",
    "session_id": "session",
    "member_epoch": "epoch",
    "group_epoch": "epoch",
    "assignment_epoch": "epoch",
}
"""Fields that hold ids. (`leader` is a member; the leader of a partition is `leader_id`.)
Epochs of consumer groups count as ids: Kafka's begin with 2, kledger's with 1."""
TIMES: Final = {
    "log_append_time_ms",
    "transaction_start_time_ms",
    "last_timestamp",
    "last_fetch_timestamp",
    "last_caught_up_timestamp",
}
ADDRESSES: Final = {"host", "port", "client_host", "log_dir", "total_bytes", "usable_bytes"}
TEXTS: Final = {"error_message", "batch_index_error_message"}
UNSEEN: Final = {"documentation"}
KEY_WORDS: Final = (
    "already exists",
    "does not exist",
    "not found",
    "Topic name is invalid",
    "is not allowed",
    "collides with existing topic",
    "would not be an increase",
    "non-positive value",
    "The target replication factor",
    "The manual partition assignment",
    "Duplicate topic name",
    "Invalid value",
    "Not a number of type",
    "Value must be at least",
    "String must be one of",
    "Null value not supported",
    "because its type is not LIST",
    "Unknown topic config name",
    "Unknown group config name",
    "Unknown client metrics configuration",
    "Illegal client matching pattern",
    "Unknown resource type",
    "Cannot update these configs dynamically",
    "at default cluster level",
    "only per-listener",
    "while ELR is enabled",
    "Unexpected broker id",
    "No such topic",
    "No such partition",
    "Unable to find",
    "does not host",
    "is not a member of group",
    "is not supported",
    "is not a valid regular expression",
    "can't be empty",
    "must abandon all its partitions",
    "is unknown",
    "No Authorizer is configured",
    "must be greater than 0",
    "Invalid configuration key",
    "Unknown SCRAM mechanism",
    "One or more records have been rejected",
    "is out of range",
    "Invalid magic",
    "message without key",
)
"""What scripts and people look for in Kafka's texts."""
NAMES: Final = ("name", "topic", "group_id", "transactional_id", "key", "resource_name", "api_key")
NUMBERS: Final = ("partition_index", "index", "partition", "node_id", "broker_id")
ORDERED: Final = {"synonyms", "aborted_transactions"}
"""Lists whose order says something."""
THROTTLE: Final = "throttle_time_ms"
"""How long a client is to wait depends on when it asks."""
OWN_TOPICS: Final = "__"
"""Kafka keeps groups and transactions in topics whose names begin so; kledger has none."""
ZERO: Final = UUID(int=0)


class Masks:
    """What was seen of one server so far."""

    def __init__(self, now_ms: int) -> None:
        """Take the time at which the run began."""
        self._begun_ms = now_ms
        self._seen: dict[tuple[str, object], str] = {}

    def plain(self, answer: ApiMessage | Closed | Silent, version: int) -> Plain:
        """Turn an answer into dictionaries, lists and numbers."""
        if not isinstance(answer, ApiMessage):
            return type(answer).__name__.lower()
        return self._struct(answer, version)

    def identity(self, kind: str, value: object) -> str:
        """Give an id its number."""
        count = sum(each == kind for each, _ in self._seen)
        return self._seen.setdefault((kind, value), f"{kind} {count + 1}")

    def time(self, value: int) -> Plain:
        """Leave times alone that the client chose."""
        return "now" if value >= self._begun_ms else value

    def _struct(self, value: Struct, version: int) -> dict[str, Plain]:
        return {
            one.name: self._field(one.name, getattr(value, one.name), version)
            for one in fields_of(type(value))
            if version in one.versions and one.name not in UNSEEN
        }

    def _field(self, name: str, value: Any, version: int) -> Plain:
        if isinstance(value, list):
            return self._list(name, value, version)
        if isinstance(value, Struct):
            return self._struct(value, version)
        if name == "records" and value is not None:
            return self._batches(bytes(value))
        masks: list[tuple[bool, Callable[[Any], Plain]]] = [
            (name in TEXTS, _key_words),
            (name in TIMES, self.time),
            (name == THROTTLE, lambda one: "a while" if one else one),
            (name in ADDRESSES, lambda one: "here" if one not in {"", -1} else one),
            (name in KINDS, lambda one: self._identity_or_none(KINDS[name], one)),
        ]
        return next((mask(value) for applies, mask in masks if applies), value)

    def _identity_or_none(self, kind: str, value: Any) -> Plain:
        is_none = value in {None, "", -1, 0, ZERO} and (kind != "producer" or value == -1)
        return str(value) if is_none else self.identity(kind, value)

    def _list(self, name: str, values: list[Any], version: int) -> Plain:
        if not values or not isinstance(values[0], Struct):
            return sorted(values)
        if name not in ORDERED:
            values = sorted(filter(_is_ours, values), key=_order)
        if not values:
            return []
        plain = [self._struct(one, version) for one in values]
        keys = [_key(one) for one in plain]
        if name in ORDERED or "" in keys or len(set(keys)) < len(keys):
            return plain
        return dict(zip(keys, plain, strict=True))

    def _batches(self, data: bytes) -> Plain:
        batches = list(iterate_batches(data))
        found: list[Plain] = [self._batch(*one) for one in batches]
        whole = sum(header.size for header, _ in batches)
        return found if whole == len(data) else [*found, "a piece"]

    def _batch(self, header: BatchHeader, batch: memoryview) -> Plain:
        verify_checksum(batch, header)
        records = [
            (self.time(one.timestamp), bytes(one.key or b""), bytes(one.value or b""))
            for one in iterate_records(batch)
        ]
        return {
            "base_offset": header.base_offset,
            "leader_epoch": header.leader_epoch,
            "attributes": header.attributes,
            "last_offset_delta": header.last_offset_delta,
            "base_timestamp": self.time(header.base_timestamp),
            "max_timestamp": self.time(header.max_timestamp),
            "producer": self._identity_or_none("producer", header.producer_id),
            "epoch": header.producer_epoch,
            "sequence": header.base_sequence,
            "records": records,
        }


def _key_words(text: str | None) -> frozenset[str]:
    """What of a text has to stand in that of the other server."""
    return frozenset(one for one in KEY_WORDS if text is not None and one in text)


def _is_ours(value: Struct) -> bool:
    name = getattr(value, "name", None) or getattr(value, "topic", None)
    return not (isinstance(name, str) and name.startswith(OWN_TOPICS))


def _key(plain: dict[str, Plain]) -> str:
    """The fields that identify an entry of a list; empty without such fields."""
    found = (plain[one] for one in (*NAMES, *NUMBERS) if plain.get(one) is not None)
    return str(next(found, ""))


def _order(value: Struct) -> tuple[Any, ...]:
    """The place of a thing among its like: by name, by number, by what else is the same."""
    known = TIMES | ADDRESSES | TEXTS | UNSEEN | KINDS.keys()
    names = [str(getattr(value, one, "")) for one in NAMES]
    numbers = [getattr(value, one, 0) for one in NUMBERS]
    rest = [
        repr(getattr(value, one.name))
        for one in fields_of(type(value))
        if one.name not in known and one.type.struct is None and one.type.element is None
    ]
    parts = [
        sorted(_order(each) for each in getattr(value, one.name) or () if isinstance(each, Struct))
        for one in fields_of(type(value))
        if one.type.element is not None
    ]
    return *names, *numbers, *rest, *parts
