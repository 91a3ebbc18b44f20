"""What Kafka's performance tools print, read into figures."""

import pytest

from benchmarks.clients import ClientFailed, parse_consumed, parse_produced

PRODUCED = """\
In steady state.
300000 records sent, 34985.422741 records/sec (33.36 MB/sec), 462.25 ms avg latency, 1 ms 50th.
250000 steady state records sent, 42502.5 records/sec (40.53 MB/sec), 361.10 ms avg latency.
"""
CONSUMED = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-01-01 00:00:00:001, 2026-01-01 00:00:05:001, 286.1, 50.8, 300000, 53267.0, 4347, 1285, \
200.0, 233463.0
"""


def test_producer_rate_is_that_of_the_steady_state() -> None:
    found = parse_produced(PRODUCED)
    assert found["records_per_s"] == 42502.5
    assert found["mb_per_s"] == pytest.approx(40.53 * 1.048576)


def test_consumer_rate_leaves_the_joining_out() -> None:
    found = parse_consumed(CONSUMED)
    assert found["records"] == 300_000
    assert found["records_per_s"] == 233463.0
    assert found["mb_per_s"] == pytest.approx(200 * 1.048576)


@pytest.mark.parametrize("parse", [parse_produced, parse_consumed])
def test_output_without_a_summary_is_a_failure(parse: object) -> None:
    assert callable(parse)
    with pytest.raises(ClientFailed):
        parse("nothing of use")
