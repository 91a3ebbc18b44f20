"""Row codecs."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.ledger import UnreadableRow
from kledger.topics.partition.leader_epoch_state import EpochStart
from kledger.topics.partition.offset_index import Interval, LedgerSummary
from kledger.topics.partition.producer_state import BatchRange, ProducerEntry
from kledger.topics.partition.records import (
    Checkpoint,
    TopicRecord,
    decode_checkpoint,
    decode_interval,
    decode_ledger_summary,
    decode_log_start,
    decode_topic,
    encode_checkpoint,
    encode_interval,
    encode_ledger_summary,
    encode_log_start,
    encode_topic,
)

LONG = st.integers(-(1 << 63), (1 << 63) - 1)
INT = st.integers(0, (1 << 31) - 1)
RANGES = st.lists(st.builds(BatchRange, INT, INT, LONG, LONG, LONG), max_size=5).map(tuple)
PRODUCERS = st.dictionaries(
    LONG, st.builds(ProducerEntry, st.integers(0, 32767), RANGES, LONG, LONG), max_size=4
)


@given(st.text(max_size=10), st.uuids(), INT, st.dictionaries(st.text(), st.text()), INT)
def test_topic_round_trip(
    name: str, topic_id: UUID, count: int, configs: dict[str, str], created_ms: int
) -> None:
    record = TopicRecord(name, topic_id, count, configs, created_ms)
    assert record == decode_topic(encode_topic(record))


@given(LONG, LONG, LONG, PRODUCERS)
def test_checkpoint_round_trip(
    offset: int, ledger: int, entry: int, producers: dict[int, ProducerEntry]
) -> None:
    checkpoint = Checkpoint(offset, ledger, entry, producers)
    row = encode_checkpoint(checkpoint)
    assert checkpoint == decode_checkpoint(row)
    if producers:
        with pytest.raises(UnreadableRow):
            decode_checkpoint(row[:-1])


@given(PRODUCERS, st.lists(st.builds(EpochStart, INT, LONG)), st.dictionaries(LONG, INT))
def test_checkpoint_with_epochs_round_trip(
    producers: dict[int, ProducerEntry], epochs: list[EpochStart], coordinators: dict[int, int]
) -> None:
    checkpoint = Checkpoint(9, 3, 4, producers, tuple(epochs), coordinators)
    assert checkpoint == decode_checkpoint(encode_checkpoint(checkpoint))


@given(LONG, st.builds(LedgerSummary, LONG, LONG, LONG, LONG), st.builds(Interval, *[LONG] * 6))
def test_rows_of_the_index_round_trip(
    offset: int, ledger_summary: LedgerSummary, interval: Interval
) -> None:
    assert ledger_summary == decode_ledger_summary(
        ledger_summary.ledger_id, encode_ledger_summary(ledger_summary)
    )
    assert interval == decode_interval(interval.first_entry, encode_interval(interval))
    assert offset == decode_log_start(encode_log_start(offset))


@pytest.mark.parametrize("row", [b"", b"\x02" + bytes(8), b"\x01", b"\x01" + bytes(9)])
def test_other_versions_and_sizes_are_refused(row: bytes) -> None:
    with pytest.raises(UnreadableRow):
        decode_log_start(row)


@pytest.mark.parametrize("row", [b"\x01", b"\x01{}", b'\x01{"id":3}', b"\x01[]", b"\x01\xff"])
def test_damaged_topic_is_refused(row: bytes) -> None:
    with pytest.raises(UnreadableRow):
        decode_topic(row)
