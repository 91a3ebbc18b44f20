"""Names and numbers."""

import pytest

from kledger.runtime.metrics import Counter, Metrics, labelled


def test_snapshot_shows_counters_and_gauges_by_name() -> None:
    metrics, queue = Metrics(), [1, 2, 3]
    metrics.gauge("queue_count", lambda: len(queue))
    metrics.counter("produce_bytes").add(100)
    metrics.counter("produce_bytes").value += 11
    metrics.counter("fetches")
    queue.pop()
    assert {"fetches": 0, "produce_bytes": 111, "queue_count": 2} == metrics.snapshot()


def test_one_name_is_one_kind() -> None:
    metrics = Metrics()
    metrics.counter("a")
    metrics.gauge("b", lambda: 1)
    with pytest.raises(AssertionError):
        metrics.gauge("a", lambda: 1)
    with pytest.raises(AssertionError):
        metrics.counter("b")


def test_numbers_of_one_kind_differ_by_their_labels() -> None:
    metrics = Metrics()
    for api in ("produce", "fetch"):
        metrics.counter("requests", "served", {"api": api}).add(len(api))
    metrics.gauge("connections", lambda: 3)
    gauges, counters = metrics.families()
    assert ("connections", False, [({}, 3)]) == (gauges.name, gauges.is_counter, gauges.samples)
    assert ("requests", "served", True) == (
        counters.name, counters.about, counters.is_counter
    )  # fmt: skip
    assert [({"api": "fetch"}, 5), ({"api": "produce"}, 7)] == counters.samples
    metrics.drop("requests", {"api": "fetch"})
    assert {"connections": 3, 'requests{api="produce"}': 7} == metrics.snapshot()


def test_a_shown_counter_keeps_its_value() -> None:
    metrics, kept = Metrics(), Counter("revisions")
    for expected in (1, 2):
        metrics.show("hits", kept, {"a": "1"})
        kept.add()
        assert {'hits{a="1"}': expected} == metrics.snapshot()
        metrics.drop("hits", {"a": "1"})
        assert {} == metrics.snapshot()


def test_labels_are_written_as_prometheus_does() -> None:
    assert 'hits{a="1",b="x\\"y\\\\z\\n"}' == labelled("hits", {"a": "1", "b": 'x"y\\z\n'})


def test_a_dropped_name_is_not_shown_and_can_be_used_again() -> None:
    metrics = Metrics()
    metrics.gauge("size", lambda: 1)
    metrics.counter("hits").add()
    for name in ("size", "hits", "never"):
        metrics.drop(name)
    assert {} == metrics.snapshot()
    metrics.gauge("hits", lambda: 2)
    assert {"hits": 2} == metrics.snapshot()
