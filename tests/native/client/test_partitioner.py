"""Keys map to the partition of Kafka's default partitioner; other messages rotate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_murmur2

from kledger.native.client.partitioner import StickyPartitioner, murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [  # the numbers of Kafka's own test of the function
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hash_is_kafkas(key: bytes, expected: int) -> None:
    assert expected & 0xFFFFFFFF == murmur2(key)


@given(st.binary(max_size=40), st.integers(1, 50))
def test_partition_is_that_of_another_client(key: bytes, count: int) -> None:
    assert (kafka_murmur2(key) & 0x7FFFFFFF) % count == partition_of_key(key, count)


def test_key_stays_where_it_is() -> None:
    choice = StickyPartitioner(7)
    expected = partition_of_key(b"k", 7)
    for _ in range(3):
        assert expected == choice.choose(b"k")
        choice.note_batch_taken(expected)


def test_messages_without_a_key_rotate_with_every_batch() -> None:
    choice = StickyPartitioner(3, first=4)
    taken = []
    for _ in range(4):
        taken += [choice.choose(None), choice.choose(None)]
        choice.note_batch_taken(taken[-1])
    assert [1, 1, 2, 2, 0, 0, 1, 1] == taken


def test_batch_of_another_partition_does_not_advance() -> None:
    choice = StickyPartitioner(3)
    choice.note_batch_taken(2)
    assert 0 == choice.choose(None)


def test_new_partitions_are_used() -> None:
    choice = StickyPartitioner(1)
    choice.set_partition_count(2)
    choice.note_batch_taken(0)
    assert 1 == choice.choose(None)
