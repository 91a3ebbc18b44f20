"""Shard counts: into how many shards the groups and the transactional ids of a store are divided.

Rule: a number is written once, with the first rows of a store, and never changes: with another
number, a key would belong to a shard that does not have its records.
Must not know: what a shard is, which keys it has.
"""

from typing import Final, Literal

from kledger.ledger import LedgerStore, UnreadableRow
from kledger.ledger.record_table import RecordRows, RecordTable
from kledger.ledger.row_format import TEXT_REST, U32, RowFormat, RowKey

COORDINATOR_SHARD_COUNT: Final = 64
"""Of groups, and of transactional ids, in a new store."""
SHARD_COUNT_MAX: Final = 1 << 16

ShardKind = Literal["groups", "transactions"]

_KEYS = RowKey("shard count", b"gateway/coordinator_shards\x01", kind=TEXT_REST)
_COUNTS = RowFormat[int]("shard count", {1: U32})


def encode_count_key(kind: str) -> bytes:
    """Return the key of the row with the number of shards of a kind."""
    return _KEYS.encode(kind)


def encode_count(count: int) -> bytes:
    """Return the row with a number of shards."""
    return _COUNTS.encode(count)


def decode_count(key: bytes, row: bytes) -> tuple[str, int]:
    """Return kind and number of shards of a row.

    Raises:
        UnreadableRow: the layout is not one of ours, or the number is out of range.
    """
    (kind,) = _KEYS.decode(key)
    count = _COUNTS.decode(row, which=kind)
    if not 0 < count <= SHARD_COUNT_MAX:
        message = f"shard count row {kind!r}: expected 1 to {SHARD_COUNT_MAX}, got {count}"
        raise UnreadableRow(message)
    return kind, count


_ROWS: Final = RecordRows[str, int](
    prefix=_KEYS.prefix, encode_key=encode_count_key, encode=encode_count, decode=decode_count
)


def load_shard_count(store: LedgerStore, kind: ShardKind) -> int:
    """Return how many shards of a kind a store has.

    A store without the row gets it with whatever is written next: if a crash loses the row, it has
    lost everything behind it, too.

    Raises:
        UnreadableRow: the stored number cannot be read.
        LedgerError: the store has stopped.
    """
    counts = RecordTable(store, _ROWS)
    counts.load()
    if counts.get(kind) is None:
        counts.submit_lazily([(kind, COORDINATOR_SHARD_COUNT)])
    count = counts.get(kind)
    assert count is not None, f"the number of shards of {kind} was just set"
    return count
