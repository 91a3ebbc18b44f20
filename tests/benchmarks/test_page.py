"""The page and its chart show what docs/benchmarks.json has, and nothing else."""

from benchmarks.__main__ import CHART, PAGE, PUBLISHED
from benchmarks.chart import ratio_chart
from benchmarks.report import render
from benchmarks.results import from_json
from benchmarks.targets import judge


def test_page_is_written_from_the_published_results() -> None:
    published = from_json(PUBLISHED.read_text())
    assert render(published) == PAGE.read_text()
    assert ratio_chart(judge(published)) == CHART.read_text()
