"""Results of queries are those of the records that were sent."""

import json

import pytest

from benchmarks.cases import choose, quick
from benchmarks.clients import ClientFailed
from benchmarks.programs.payload import VALUES_COUNT, json_values
from benchmarks.spark_cases import check_result


def test_sum_is_that_of_the_amounts() -> None:
    (case,) = choose(["spark-1k"])
    case = quick(case, 0.001)
    values = json_values(case.record_bytes)
    total = sum(json.loads(values[n % VALUES_COUNT])["amount"] for n in range(case.records))
    check_result(case, "json", total)
    check_result(case, "count", case.records)
    for query, result in (("json", total - 1), ("count", case.records - 1)):
        with pytest.raises(ClientFailed, match=f"spark-1k: {query} gave {result}, expected"):
            check_result(case, query, result)


def test_every_size_is_read_plain_and_compressed() -> None:
    found = {(case.record_bytes, case.records, case.codec) for case in choose(["spark-*"])}
    assert {
        (size, count, codec)
        for size, count in ((100, 5_000_000), (1000, 1_000_000))
        for codec in ("none", "lz4")
    } == found
