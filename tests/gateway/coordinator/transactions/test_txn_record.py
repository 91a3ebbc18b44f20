"""The stored form of a transactional id."""

import pytest

from kledger.gateway.coordinator.transactions.txn_record import (
    TxnRecord,
    TxnState,
    decode_txn,
    encode_txn,
    encode_txn_key,
)
from kledger.ledger import UnreadableRow
from kledger.offsets import TopicPartition

PLAIN = TxnRecord(transactional_id="é-1", producer_id=7, timeout_ms=60_000, updated_ms=1)
FULL = PLAIN._replace(
    previous_producer_id=5,
    next_producer_id=9,
    epoch=32_767,
    last_epoch=3,
    state=TxnState.PREPARE_COMMIT,
    is_v2=True,
    partitions=frozenset(
        {TopicPartition("a", 0), TopicPartition("b", 2**31 - 1), TopicPartition("a", 1)}
    ),
    groups=frozenset({"g", "ü"}),
    start_ms=10,
    updated_ms=2**62,
)


@pytest.mark.parametrize(
    "record", [PLAIN, FULL, *(FULL._replace(state=state) for state in TxnState)]
)
def test_row_reads_back_equal(record: TxnRecord) -> None:
    key = encode_txn_key(record.transactional_id)
    assert record == decode_txn(key, encode_txn(record))


def test_row_of_a_newer_program_is_refused() -> None:
    with pytest.raises(UnreadableRow, match="'t': expected version 1, got 2"):
        decode_txn(encode_txn_key("t"), b"\x02" + encode_txn(PLAIN)[1:])


def test_states_are_stored_by_their_order() -> None:
    """Another order would read old rows wrongly."""
    assert [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
    ] == [state.value for state in TxnState]  # fmt: skip


def test_a_state_is_idle_prepared_or_ongoing() -> None:
    kinds = [(state.is_idle, state.is_prepared, state is TxnState.ONGOING) for state in TxnState]
    assert all(1 == sum(kind) for kind in kinds)
