"""Report plugin: converts the outcome of the tests to the rows of the compatibility page.

Rule: the process that runs a test writes the row into the test's report; the process that started
the run gathers the rows of all reports. Without pytest-xdist both are the same process.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from compat_tests import compatibility_report, peers, programs
from compat_tests.compatibility_report import WORKS, Row

_PROPERTY = "compatibility row"


class ReportPlugin:
    """Collects one row for each test that names a peer and a feature, and writes the page."""

    def __init__(self, page: Path, config: pytest.Config) -> None:
        """Write to `page`."""
        self._page = page
        self._config = config
        self._rows: dict[tuple[str, str], Row] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the row to the report of the call, or of a set-up that failed."""
        report = yield
        named = _peer_and_feature(item)
        if named and (report.when == "call" or report.failed):
            client, feature = named
            version = programs.version(client) or peers.peer_version(client)
            report.user_properties.append((_PROPERTY, [client, version, feature, _result(report)]))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst row of a feature."""
        for name, value in report.user_properties:
            if name == _PROPERTY and isinstance(value, list):
                client, version, feature, result = value
                known = self._rows.get((client, feature))
                if known is None or known.result == WORKS:
                    row = Row(client=client, version=version, feature=feature, result=result)
                    self._rows[client, feature] = row

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the page, in the process that started the run."""
        if not self._rows or hasattr(self._config, "workerinput"):
            return
        old = self._page.read_text() if self._page.exists() else ""
        rows = compatibility_report.merge(
            compatibility_report.parse(old), self._rows.values(), is_complete=self._is_complete()
        )
        self._page.parent.mkdir(exist_ok=True)
        self._page.write_text(compatibility_report.render(rows))

    def _is_complete(self) -> bool:
        """True when nothing was deselected, on the command line or by an early end."""
        option = self._config.option
        named = [Path(argument).name for argument in self._config.args]
        return not (option.markexpr or option.keyword or option.maxfail) and named == [
            "compat_tests"
        ]


def _peer_and_feature(item: pytest.Item) -> tuple[str, str] | None:
    """Give what the marks say; a feature's text may name parameters of the test in braces."""
    peer, feature = item.get_closest_marker("peer"), item.get_closest_marker("feature")
    if peer is None or feature is None:
        return None
    callspec = getattr(item, "callspec", None)
    return peer.args[0], feature.args[0].format(**(callspec.params if callspec else {}))


def _result(report: pytest.TestReport) -> str:
    """Put an outcome into the words of a cell."""
    if report.passed:
        return WORKS
    if report.skipped:
        return f"not yet: {getattr(report, 'wasxfail', '')}"
    crash = getattr(report.longrepr, "reprcrash", None)
    return compatibility_report.failure_result(crash.message if crash else str(report.longrepr))
