"""Values have the size asked for, differ, and are the same in every run."""

import json
import zlib

from benchmarks.programs.payload import json_values, payload_values


def test_values_have_the_size_and_differ() -> None:
    for size in (100, 1000, 10_000):
        values = payload_values(size, count=20)
        assert {size} == {len(value) for value in values}
        assert len(set(values)) == 20


def test_values_are_the_same_each_time() -> None:
    assert payload_values(100) == payload_values(100)


def test_values_can_be_compressed_but_not_to_nothing() -> None:
    block = b"".join(payload_values(1000, count=60))
    assert 0.1 < len(zlib.compress(block)) / len(block) < 0.7


def test_objects_have_the_size_and_count_from_zero() -> None:
    for size in (100, 1000):
        values = json_values(size, count=20)
        assert {size} == {len(value) for value in values}
        assert list(range(20)) == [json.loads(value)["amount"] for value in values]
