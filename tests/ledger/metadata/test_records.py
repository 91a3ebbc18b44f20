"""Records: whole, byte by byte, and with trailing bytes."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger.errors import Corrupt
from kledger.ledger.metadata.records import (
    CopyDeletion,
    LedgerRecord,
    ManagedLedgerRecord,
    OffloadContext,
    decode_copy_deletion,
    decode_counter,
    decode_ledger,
    decode_managed_ledger,
    encode_copy_deletion,
    encode_counter,
    encode_ledger,
    encode_managed_ledger,
)
from kledger.ledger.position import Position

UNSIGNED = st.integers(min_value=0, max_value=(1 << 63) - 1)
SIGNED = st.integers(min_value=-1, max_value=(1 << 63) - 1)

managed_ledgers = st.builds(
    ManagedLedgerRecord,
    managed_ledger_id=UNSIGNED,
    version=UNSIGNED,
    terminated_at=st.none() | st.builds(Position, SIGNED, SIGNED),
    properties=st.dictionaries(st.text(), st.text(), max_size=3),
)
ledgers = st.builds(
    LedgerRecord,
    ledger_id=UNSIGNED,
    entries=UNSIGNED,
    size=UNSIGNED,
    closed_ms=UNSIGNED,
    max_timestamp_ms=SIGNED,
)


@given(managed_ledgers)
def test_managed_ledger_round_trip(record: ManagedLedgerRecord) -> None:
    assert record == decode_managed_ledger(encode_managed_ledger(record))


@given(ledgers)
def test_ledger_round_trip(record: LedgerRecord) -> None:
    assert record == decode_ledger(record.ledger_id, encode_ledger(record))


@given(UNSIGNED)
def test_counter_round_trip(value: int) -> None:
    assert value == decode_counter(encode_counter(value))


MANAGED = encode_managed_ledger(
    ManagedLedgerRecord(managed_ledger_id=7, version=3, properties={"owner": "mé", "": ""})
)
CLOSED = LedgerRecord(ledger_id=9, entries=5, size=50, closed_ms=1)
LEDGER = encode_ledger(CLOSED)
ATTEMPT = UUID(int=0x55)
OFFLOAD = OffloadContext(
    attempt=ATTEMPT, driver="s3", location={"b": "x"}, completed_ms=3, primary_deleted=True
)
OFFLOADED = replace(CLOSED, offload=OFFLOAD)


def test_every_cut_is_noticed() -> None:
    for row in (MANAGED[:end] for end in range(len(MANAGED))):
        with pytest.raises(Corrupt):
            decode_managed_ledger(row)
    for row in (LEDGER[:end] for end in range(len(LEDGER))):
        with pytest.raises(Corrupt):
            decode_ledger(9, row)
    for row in (encode_counter(5)[:end] for end in range(9)):
        with pytest.raises(Corrupt):
            decode_counter(row)


def test_trailing_bytes_are_noticed() -> None:
    with pytest.raises(Corrupt, match="1 bytes too many"):
        decode_managed_ledger(MANAGED + b"x")
    with pytest.raises(Corrupt):
        decode_ledger(9, LEDGER + b"x")
    with pytest.raises(Corrupt):
        decode_counter(encode_counter(5) + b"x")


def test_another_version_is_refused() -> None:
    with pytest.raises(Corrupt, match="expected version 1 or 2, got 3"):
        decode_managed_ledger(b"\x03" + MANAGED[1:])
    with pytest.raises(Corrupt, match="expected version 1 or 2, got 0"):
        decode_ledger(9, b"\x00" + LEDGER[1:])


def test_a_property_that_is_no_text_is_refused() -> None:
    with pytest.raises(Corrupt, match="codec"):
        decode_managed_ledger(MANAGED.replace("é".encode(), b"\xff\xff"))


def test_rows_are_small_and_stay_as_they_are() -> None:
    counts = "000000000000000500000000000000320000000000000001ffffffffffffffff"
    assert "02" + counts + "00" == LEDGER.hex()
    offload = "01" + ATTEMPT.hex + "00027333" + "00000001" + "00000001620000000178"
    times = "0000000000000003" + "01"
    assert "02" + counts + offload + times == encode_ledger(OFFLOADED).hex()
    deletion = encode_copy_deletion(CopyDeletion.of(9, OFFLOAD))
    assert "01" + "0000000000000009" + "01" + offload[34:] == deletion.hex()


def test_rows_of_version_1_are_read() -> None:
    row = bytes.fromhex("01000000000000000500000000000000320000000000000001ffffffffffffffff")
    assert LedgerRecord(ledger_id=9, entries=5, size=50, closed_ms=1) == decode_ledger(9, row)


@given(ledgers, st.uuids(), st.text(), st.dictionaries(st.text(), st.text(), max_size=3), UNSIGNED)
def test_offloads_and_deletions_round_trip(
    record: LedgerRecord, attempt: UUID, driver: str, location: dict[str, str], completed_ms: int
) -> None:
    offload = OffloadContext(
        attempt=attempt, driver=driver, location=location, completed_ms=completed_ms
    )
    record = replace(record, offload=offload)
    assert record == decode_ledger(record.ledger_id, encode_ledger(record))
    deletion = CopyDeletion.of(record.ledger_id, offload)
    assert deletion == decode_copy_deletion(attempt, encode_copy_deletion(deletion))


def test_every_cut_of_an_offload_is_noticed() -> None:
    row = encode_ledger(OFFLOADED)
    for end in range(len(row)):
        with pytest.raises(Corrupt):
            decode_ledger(9, row[:end])
