"""The numbers of an idempotent producer."""

from kledger.batches.builder import BatchProducer
from kledger.native.producer_sequence_state import EPOCH_MAX, SEQUENCE_MASK, ProducerSequence


def test_numbers_follow_each_other() -> None:
    sequence = ProducerSequence(7)
    assert [BatchProducer(7, 0, 0), BatchProducer(7, 0, 3)] == [sequence.take(3), sequence.take(1)]
    assert BatchProducer(7, 0, 4) == sequence.take(1)


def test_sequence_wraps_to_0() -> None:
    sequence = ProducerSequence(7)
    sequence.take(SEQUENCE_MASK)
    assert [SEQUENCE_MASK, 1] == [sequence.take(2).base_sequence, sequence.take(1).base_sequence]


def test_new_epoch_begins_at_0() -> None:
    sequence = ProducerSequence(7)
    sequence.take(5)
    sequence.begin_epoch(8)
    assert BatchProducer(7, 1, 0) == sequence.take(1)


def test_fresh_id_is_used_after_the_last_epoch() -> None:
    sequence = ProducerSequence(7)
    for _ in range(EPOCH_MAX):
        sequence.begin_epoch(8)
    assert BatchProducer(7, EPOCH_MAX, 0) == sequence.take(1)
    sequence.begin_epoch(8)
    assert BatchProducer(8, 0, 0) == sequence.take(1)
