"""What a pipeline prints of a micro-batch, and keeps for scrapers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.errors import PipelineFailed, WrongCall
from pipelines.progress import RECORDS, StreamProgress
from pipelines.summary import Offsets

END = {"orders": {"0": 70, "1": 20}}


def micro_batch(metrics: dict[str, str]) -> Any:
    """An event of Spark for the query `archive-1`; sources of Python have no metrics."""
    source = SimpleNamespace(endOffset=json.dumps(END), metrics=metrics)
    step = SimpleNamespace(
        name="archive-1", batchId=3, numInputRows=90, processedRowsPerSecond=45.0,
        batchDuration=2000, sources=[source], observedMetrics={RECORDS: {"rows": 90, "bad": 0}},
    )  # fmt: skip
    return SimpleNamespace(progress=step)


def no_server() -> Offsets:
    raise PipelineFailed("no server")


def no_topic() -> Offsets:
    raise WrongCall("not in the tier: orders")


@pytest.mark.parametrize(
    ("latest", "metrics", "expected"),
    [
        (lambda: {"orders": {"0": 100, "1": 20}}, {}, 30),
        (lambda: {"orders": {"0": 70, "1": 20, "2": 5}}, {}, 5),
        (lambda: {"orders": {"0": 70, "1": 8}}, {}, 0),
        (lambda: {"orders": {"0": 100}}, {"maxOffsetsBehindLatest": "7"}, 7),
        (no_server, {}, None),
        (no_topic, {}, None),
        (None, {}, None),
    ],
)
def test_lag_is_printed_and_kept_for_any_source(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    latest: Callable[[], Offsets] | None,
    metrics: dict[str, str],
    expected: int | None,
) -> None:
    """Of the partition that is furthest behind; Spark's number comes first, where there is one."""
    path = tmp_path / "metrics.prom"
    progress = StreamProgress("archive", frozenset({"archive-1"}), str(path), latest)
    progress.onQueryProgress(micro_batch(metrics))
    lag = "" if expected is None else f", {expected} offsets behind"
    assert capsys.readouterr().err == (
        f'archive: batch 3, 90 rows, 45 rows/s, offsets {{"orders":{{"0":70,"1":20}}}}{lag}\n'
    )
    kept = [line for line in path.read_text().splitlines() if "offsets_behind_max{" in line]
    assert kept == (
        [] if expected is None
        else [f'kledger_pipeline_offsets_behind_max{{pipeline="archive"}} {expected}']
    )  # fmt: skip
    assert progress.rows_in == 90
