"""Shards of keys, as Java computes them, and what is answered for each."""

import pytest

from kledger.gateway.coordinator.coordinator_shards_state import (
    REMEMBERED_KEY_LENGTH_MAX,
    CoordinatorShards,
    java_hash,
    shard_of,
)
from kledger.gateway.wire.error_codes import ErrorCode

NONE, LOADING = ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
DETACHED = ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Printed by String.hashCode of OpenJDK.
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("group", 98629247),
        ("my-consumer-group", 1513705513),
        ("transactional-id-17", -1774587692),
        ("connect-file-sink", -734210271),
        ("\u00fcmlaut", -1271410363),
        ("\U0001f600 group", -1570619006),  # two units of UTF-16 for one character
        ("polygenelubricants", -2147483648),
    ],
)
def test_hash_is_that_of_java(text: str, expected: int) -> None:
    assert expected == java_hash(text)


@pytest.mark.parametrize(
    ("key", "count", "expected"),
    [
        ("my-consumer-group", 50, 13),
        ("my-consumer-group", 64, 41),
        ("transactional-id-17", 50, 42),  # of a negative number the absolute value
        ("transactional-id-17", 64, 44),
        ("polygenelubricants", 50, 0),  # its absolute value is no Java int; Kafka takes 0
        ("polygenelubricants", 7, 0),
        ("anything", 1, 0),
    ],
)
def test_shard_is_the_partition_that_kafka_would_choose(
    key: str, count: int, expected: int
) -> None:
    assert expected == shard_of(key, count)


def test_keys_that_differ_little_are_spread_over_all_shards() -> None:
    shards = [shard_of(f"group-{number}", 64) for number in range(1_000)]
    assert set(range(64)) == set(shards)


def test_requests_are_answered_by_the_shard_of_their_key() -> None:
    shards = CoordinatorShards(4)
    keys = {shard_of(key, 4): key for key in ("a", "b", "c", "d")}
    assert [DETACHED] * 4 == [shards.error(keys[number]) for number in range(4)]
    shards.attach([0, 1, 2])
    shards.begin_loading([3])
    assert [NONE, NONE, NONE, LOADING] == [shards.error(keys[number]) for number in range(4)]
    assert (True, [0, 1, 2]) == (shards.is_loading, shards.attached())
    assert [True, False] == [shards.are_attached(each) for each in ([0, 2], range(4))]
    shards.attach([3])
    assert [NONE] * 4 == [shards.error(keys[number]) for number in range(4)]
    assert (False, True) == (shards.is_loading, shards.are_attached(range(4)))
    shards.detach([0, 2])
    assert [DETACHED, NONE, DETACHED, NONE] == [shards.error(keys[number]) for number in range(4)]
    is_included = shards.including([0, 2])
    assert [True, False, True, False] == [is_included(keys[number]) for number in range(4)]


def test_keys_of_any_length_have_a_shard() -> None:
    shards = CoordinatorShards(64)
    keys = ["k" * length for length in (1, REMEMBERED_KEY_LENGTH_MAX, 4_096)]
    shards.attach([shard_of(key, 64) for key in keys[:-1]])
    long_is_there = shard_of(keys[-1], 64) in shards.attached()
    assert [NONE, NONE] == [shards.error(key) for key in keys[:-1]]
    assert long_is_there == (shards.error(keys[-1]) is NONE)


@pytest.mark.parametrize("number", [-1, 4])
def test_shard_that_does_not_exist_changes_nothing(number: int) -> None:
    shards = CoordinatorShards(4)
    with pytest.raises(ValueError, match=f"shard {number}: expected 0 to 3"):
        shards.attach([0, number])
    assert [] == shards.attached()
