"""The report: one page that stands alone."""

from pathlib import Path

from pipelines.expected import delays_per_carrier_and_hour, delays_per_carrier_and_window
from pipelines.report import Step, write_report


def test_report_holds_steps_and_charts_and_needs_no_network(tmp_path: Path) -> None:
    path = tmp_path / "report.html"

    write_report(
        path,
        [Step("load", "3 records", 1.25)],
        delays_per_carrier_and_hour(),
        delays_per_carrier_and_window(),
    )

    page = path.read_text()
    assert "<td>load</td><td>3 records</td><td>1.2</td>" in page
    assert page.count('class="plotly-graph-div"') == 3
    assert "<script src=" not in page
