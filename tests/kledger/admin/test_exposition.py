"""How metrics look to Prometheus."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from kledger.admin.exposition import Exposition
from kledger.runtime.metrics import Metrics


def numbers(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name, ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))):
            sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.startswith("process_")
    }  # fmt: skip


def test_names_and_units_are_those_of_prometheus() -> None:
    metrics = Metrics()
    metrics.counter("requests", "requests that were started", {"api": "fetch"}).add(3)
    metrics.counter("request_ms", "their time", {"api": "fetch"}).add(1500)
    metrics.gauge("connections", lambda: 2)
    labels = {"topic": 'a "b"\\'}
    metrics.counter("pulsar_cursor_epoch_increase_count", "revisions", labels).add(4)
    page, content_type = Exposition(metrics).page()
    assert content_type.startswith("text/plain")
    assert numbers(page.decode()) == {
        ("kledger_requests_total", "api=fetch"): 3,
        ("kledger_request_seconds_total", "api=fetch"): 1.5,
        ("kledger_connections", ""): 2,
        # The page has no such ending: the parser adds it.
        ("pulsar_cursor_epoch_increase_count_total", 'topic=a "b"\\'): 4,
    }
    assert "# HELP kledger_requests_total requests that were started\n" in page.decode()
    assert "# TYPE kledger_request_seconds_total counter\n" in page.decode()
    assert "# HELP pulsar_cursor_epoch_increase_count revisions\n" in page.decode()
    assert "# TYPE pulsar_cursor_epoch_increase_count counter\n" in page.decode()
    assert "\npulsar_cursor_epoch_increase_count{" in page.decode()


def test_the_process_is_shown_too() -> None:
    page, _ = Exposition(Metrics()).page()
    assert "\nprocess_resident_memory_bytes " in page.decode()


def test_client_that_accepts_openmetrics_gets_it() -> None:
    metrics = Metrics()
    metrics.counter("requests").add(3)
    metrics.counter("pulsar_cursor_epoch_increase_count").add(4)
    page, content_type = Exposition(metrics).page("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    families = open_metrics(page.decode())  # type: ignore[no-untyped-call]
    assert {"kledger_requests", "pulsar_cursor_epoch_increase_count"} <= {
        family.name for family in families if family.type == "counter"
    }


def test_pages_show_the_moment_at_which_they_were_asked_for() -> None:
    metrics = Metrics()
    exposition, hits = Exposition(metrics), metrics.counter("hits")
    for expected in (0, 1):
        page, _ = exposition.page()
        assert expected == numbers(page.decode())["kledger_hits_total", ""]
        hits.add()
