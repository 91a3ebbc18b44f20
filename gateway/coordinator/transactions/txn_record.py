"""Txn record: what is known of one transactional id, and its stored form.

Rule: one row per transactional id, replaced as a whole; every text is preceded by its length. The
layout has a version byte.
Must not know: when rows are written, which step may follow which.

Key:   `txn` 0x01, transactional id (UTF-8)

Value: version (u8, 1), state (u8), flags (u8, bit 0: the epoch rises with every end), producer
       id (i64), the one before (i64), the next one (i64), epoch (i16), last epoch (i16), timeout
       (i32), time of the beginning (i64), of the last change (i64), number of partitions (u32) and
       for each: topic, index (u32); number of groups (u32), and each one's id.
       Strings: length (u16), UTF-8.
"""

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kledger.offsets import TopicPartition

TXN_KEY_PREFIX: Final = b"txn\x01"
TXN_VALUE_VERSION: Final = 1
NO_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1

_HEAD = struct.Struct(">BBBqqqhhiqq")
_LENGTH = struct.Struct(">H")
_COUNT = struct.Struct(">I")
_IS_V2 = 1


class TxnState(Enum):
    """Where a transactional id stands; the values are Kafka's names, the order is stored."""

    EMPTY = "Empty"
    """No transaction yet, or a new producer: one may begin."""
    ONGOING = "Ongoing"
    """Partitions or groups belong to it; ends by EndTxn, a newer producer, or its timeout."""
    PREPARE_COMMIT = "PrepareCommit"
    """It is decided, and survives a crash; markers are being written. Asking anything: later."""
    PREPARE_ABORT = "PrepareAbort"
    """The same for an abort."""
    COMPLETE_COMMIT = "CompleteCommit"
    """All markers are durable; the next transaction may begin."""
    COMPLETE_ABORT = "CompleteAbort"
    """The same for an abort."""

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and not everybody knows."""
        return self in {TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT}

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open."""
        return self in {TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT}


_STATES = tuple(TxnState)


class UnknownTxnRowVersion(ValueError):
    """A row was written by a newer program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnRecord:
    """One transactional id.

    Attributes:
        previous_producer_id: the one before the epochs ran out; its last request may come again.
        next_producer_id: takes over when this transaction is complete, with epoch 0.
        epoch: NO_EPOCH before the first producer was initialised.
        last_epoch: the one before, whose request may come again; NO_EPOCH: none may.
        is_v2: every end of a transaction raises the epoch (KIP-890).
        start_ms: when the open transaction began; NO_TIME if none is.
        updated_ms: wall time of the last change.
    """

    transactional_id: str
    producer_id: int
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    timeout_ms: int
    state: TxnState = TxnState.EMPTY
    is_v2: bool = False
    partitions: frozenset[TopicPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    start_ms: int = NO_TIME
    updated_ms: int


def encode_txn_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id's row."""
    return TXN_KEY_PREFIX + transactional_id.encode()


def encode_txn(record: TxnRecord) -> bytes:
    """Return the row of a transactional id."""
    parts = [
        _HEAD.pack(
            TXN_VALUE_VERSION, _STATES.index(record.state),
            _IS_V2 if record.is_v2 else 0,
            record.producer_id, record.previous_producer_id, record.next_producer_id,
            record.epoch, record.last_epoch, record.timeout_ms,
            record.start_ms, record.updated_ms,
        ),
        _COUNT.pack(len(record.partitions)),
    ]  # fmt: skip
    for topic_partition in sorted(record.partitions):
        parts += (_text(topic_partition.topic), _COUNT.pack(topic_partition.partition))
    parts.append(_COUNT.pack(len(record.groups)))
    parts += map(_text, sorted(record.groups))
    return b"".join(parts)


def decode_txn(key: bytes, value: bytes) -> TxnRecord:
    """Return what a row says.

    Raises:
        UnknownTxnRowVersion: the layout is not one of ours.
    """
    if value[0] != TXN_VALUE_VERSION:
        raise UnknownTxnRowVersion(f"row of version {value[0]}, expected {TXN_VALUE_VERSION}")
    _, state, flags, producer_id, previous, following, epoch, last, timeout_ms, start, updated = (
        _HEAD.unpack_from(value)
    )
    position = _HEAD.size
    (count,) = _COUNT.unpack_from(value, position)
    position += _COUNT.size
    partitions = []
    for _ in range(count):
        topic, position = _read_text(value, position)
        partitions.append(TopicPartition(topic, _COUNT.unpack_from(value, position)[0]))
        position += _COUNT.size
    (count,) = _COUNT.unpack_from(value, position)
    position += _COUNT.size
    groups = []
    for _ in range(count):
        group, position = _read_text(value, position)
        groups.append(group)
    return TxnRecord(
        transactional_id=key[len(TXN_KEY_PREFIX) :].decode(),
        producer_id=producer_id,
        previous_producer_id=previous,
        next_producer_id=following,
        epoch=epoch,
        last_epoch=last,
        timeout_ms=timeout_ms,
        state=_STATES[state],
        is_v2=bool(flags & _IS_V2),
        partitions=frozenset(partitions),
        groups=frozenset(groups),
        start_ms=start,
        updated_ms=updated,
    )


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _read_text(value: bytes, position: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(value, position)
    start = position + _LENGTH.size
    return value[start : start + length].decode(), start + length
