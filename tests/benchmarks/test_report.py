"""The page says what was found, on what, and what missed."""

import pytest

from benchmarks import report
from benchmarks.cases import CASES, KAFKA, OS
from benchmarks.remarks import REMARKS
from benchmarks.results import Results, Sample


def results(ours: float) -> Results:
    figures = {OS: ours, KAFKA: 6.0}
    return Results(
        conditions={"CPU": "a processor, 2 cores"},
        about={"produce-1k": "librdkafka, many records"},
        samples=[
            Sample(case="produce-1k", subject=name, round=n, figures={"cpu_ms_per_mb": value})
            for name, value in figures.items()
            for n in (1, 2, 3)
        ],
    )


def test_page_holds_conditions_targets_and_figures() -> None:
    page = report.render(results(3.0))
    assert "a processor, 2 cores" in page
    assert "1 of 1 reached." in page
    assert (
        "| server CPU per MB, produce 1 KB | kledger os / Kafka | ≤ 0.8 | 0.5 | reached |" in page
    )
    assert "### produce-1k\n\nlibrdkafka, many records.\n" in page


def test_missed_target_says_by_how_much_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    key = ("produce-1k", "cpu_ms_per_mb", OS)
    monkeypatch.setitem(REMARKS, key, "because of the weather")
    page = report.render(results(7.2))
    assert "**missed by 50%**" in page
    assert "because of the weather" in page
    assert "because of the weather" not in report.render(results(3.0))


def test_figure_of_two_rounds_lies_between_them() -> None:
    found = results(3.0)
    found.samples = [
        Sample(case="produce-1k", subject=OS, round=n, figures={"cpu_ms_per_mb": value})
        for n, value in enumerate((2.0, 4.0), 1)
    ]
    assert "| 3 (2 to 4) |" in report.render(found)


def test_case_of_an_older_run_says_what_it_ran_on() -> None:
    found = results(3.0)
    found.conditions["kledger"] = "new"
    assert "; on kledger" not in report.render(found)
    found.revisions["produce-1k"] = "old"
    assert "### produce-1k\n\nlibrdkafka, many records; on kledger old.\n" in report.render(found)


def test_failures_and_profiles_have_their_parts() -> None:
    found = results(3.0)
    found.failures = {"restart-1g": "ServerFailed: no answer\nmore"}
    found.profiles = {"produce-1k, kledger os": [("gateway/x.py f", 0.25)]}
    page = report.render(found)
    assert "- restart-1g: ServerFailed: no answer\n" in page
    assert "| `gateway/x.py f` | 25% |" in page


def test_every_case_can_be_described() -> None:
    for case in CASES:
        assert isinstance(report.describe(case), str)


@pytest.mark.parametrize(
    ("value", "expected"), [(1234567.8, "1,234,568"), (0.12345, "0.123"), (99.96, "100")]
)
def test_number_keeps_three_digits(value: float, expected: str) -> None:
    assert report.number(value) == expected
