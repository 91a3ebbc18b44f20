"""The program that starts servers beside itself says how long each part took."""

from benchmarks.programs.server_in_process import measure


def test_all_figures_are_there() -> None:
    assert ["import_ms", "first_ready_ms", "ready_ms", "left_ms"] == list(measure(starts=3))
