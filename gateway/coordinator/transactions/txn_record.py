"""Txn record: the state of one transactional id, and its stored form.

Rule: one row per transactional id, replaced as a whole.
Must not know: when rows are written, which step may follow which.

Key:   `txn` 0x01, transactional id (UTF-8)

Value: version (u8, 1), state (u8), flags (u8, bit 0: the epoch rises with every end), producer
       id (i64), the one before (i64), the next one (i64), epoch (i16), last epoch (i16), timeout
       (i32), time of the beginning (i64), of the last change (i64), number of partitions (u32) and
       for each: topic, index (u32); number of groups (u32), and each one's id.
       Strings: length (u16), UTF-8.
"""

from enum import Enum
from typing import Final, NamedTuple, cast

from kledger.ledger.row_format import (
    FLAG,
    I16,
    I32,
    I64,
    TEXT16,
    TEXT_REST,
    U8,
    U32,
    RowFormat,
    RowKey,
    RowLayout,
    array,
    converted,
)
from kledger.offsets import TopicPartition

TXN_KEY_PREFIX: Final = b"txn\x01"
TXN_VALUE_VERSION: Final = 1
NO_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1


class TxnState(Enum):
    """State of a transactional id; the values are Kafka's names, the order is stored."""

    EMPTY = "Empty"
    """No transaction yet, or a new producer: one may begin."""
    ONGOING = "Ongoing"
    """Partitions or groups belong to it; ends by EndTxn, a newer producer, or its timeout."""
    PREPARE_COMMIT = "PrepareCommit"
    """The outcome is durable, its markers are being written; requests are answered with
    CONCURRENT_TRANSACTIONS. Leads to COMPLETE_COMMIT."""
    PREPARE_ABORT = "PrepareAbort"
    """The same for an abort; leads to COMPLETE_ABORT."""
    COMPLETE_COMMIT = "CompleteCommit"
    """All markers are durable; the next transaction may begin."""
    COMPLETE_ABORT = "CompleteAbort"
    """The same for an abort."""

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is durable and markers are still to be written."""
        return self is TxnState.PREPARE_COMMIT or self is TxnState.PREPARE_ABORT

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open."""
        return not self.is_prepared and self is not TxnState.ONGOING


_STATES = tuple(TxnState)


class TxnRecord(NamedTuple):
    """One transactional id; a tuple, as every step of a transaction replaces it.

    Attributes:
        previous_producer_id: the one before the epochs ran out; its last request may be repeated.
        next_producer_id: takes over when this transaction is complete, with epoch 0.
        epoch: NO_EPOCH before the first producer was initialised.
        last_epoch: the epoch before; a request with it may be a repeated one. NO_EPOCH if none may.
        is_v2: every end of a transaction raises the epoch (KIP-890).
        groups: whose offsets belong to the open transaction; of an outcome, those that have not
            taken it yet.
        start_ms: when the open transaction began; NO_TIME if none is.
        updated_ms: wall time of the last change.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    updated_ms: int
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    state: TxnState = TxnState.EMPTY
    is_v2: bool = False
    partitions: frozenset[TopicPartition] = frozenset()
    groups: frozenset[str] = frozenset()
    start_ms: int = NO_TIME


_KEYS: Final = RowKey("transaction", TXN_KEY_PREFIX, transactional_id=TEXT_REST)
_ROWS: Final = RowFormat[TxnRecord](
    "transaction",
    {
        TXN_VALUE_VERSION: RowLayout(
            TxnRecord,
            state=converted(U8, _STATES.index, _STATES.__getitem__),
            is_v2=FLAG,
            producer_id=I64,
            previous_producer_id=I64,
            next_producer_id=I64,
            epoch=I16,
            last_epoch=I16,
            timeout_ms=I32,
            start_ms=I64,
            updated_ms=I64,
            partitions=array(
                RowLayout(TopicPartition, topic=TEXT16, partition=U32), make=frozenset, order=sorted
            ),
            groups=array(TEXT16, make=frozenset, order=sorted),
        )
    },
    given=("transactional_id",),
)


def decode_txn_key(key: bytes) -> str:
    """Return the transactional id of a row's key."""
    (transactional_id,) = _KEYS.decode(key)
    return cast(str, transactional_id)


def encode_txn_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id's row."""
    return _KEYS.encode(transactional_id)


def encode_txn(record: TxnRecord) -> bytes:
    """Return the row of a transactional id."""
    return _ROWS.encode(record)


def decode_txn(key: bytes, value: bytes) -> TxnRecord:
    """Return what a row says.

    Raises:
        UnreadableRow: the layout is not one of ours, or the row is not whole.
    """
    return _ROWS.decode(value, decode_txn_key(key))
