"""Progress is reported on one line."""

from benchmarks.run import in_words


def test_figures_stand_on_one_line() -> None:
    assert in_words({"mb_per_s": 123.456, "p99_ms": 0.25}) == "mb_per_s 123.5, p99_ms 0.25"
