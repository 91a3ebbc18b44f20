"""Progress of the streaming queries of one run: lines of text, a file for scrapers, totals.

Rule: numbers come from the progress that Spark reports for whole micro-batches, so what a cut batch
counted is not in them. Must not know: what the queries compute.
"""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Condition
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pipelines.errors import PipelineFailed, WrongCall
from pipelines.options import SourceOptions
from pipelines.summary import Offsets, Summary

RECORDS: Final = "records"
"""Name of the observation behind the source: `rows` that were read, `bad` ones among them."""
OUTPUT: Final = "output"
"""Name of the observation before the sink: `rows` that were written."""
_ENDED_S: Final = 60.0


class StreamProgress(StreamingQueryListener):
    """A listener that adds up what the queries of one run did.

    Attributes:
        rows_in: records read by all micro-batches.
        rows_out: rows written.
        bad_records: records that could not be used.
    """

    def __init__(
        self,
        pipeline: str,
        query_names: frozenset[str],
        metrics: str | None,
        latest: Callable[[], Offsets] | None = None,
    ) -> None:
        """Follow queries by their names.

        Args:
            pipeline: its name, for the lines and the metrics.
            query_names: of its queries; events of others are ignored.
            metrics: the path of a file of metrics that is kept up to date; None for none.
            latest: returns where the topic ends, if the source does not report its lag.
        """
        self.rows_in = self.rows_out = self.bad_records = 0
        self._pipeline, self._names, self._metrics = pipeline, query_names, metrics
        self._latest = latest
        self._runs: set[str] = set()
        self._ended: set[str] = set()
        self._changed = Condition()

    def wait_ended(self, run_ids: list[str]) -> None:
        """Wait until Spark has delivered every event of some ended runs.

        Raises:
            TimeoutError: it did not within 60 s.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended.issuperset(run_ids), _ENDED_S):
                raise TimeoutError(f"no end of {run_ids} reported within {_ENDED_S:.0f} s")

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing happened yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """There was nothing to read."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Note the end, behind which no event of the run follows."""
        with self._changed:
            self._ended.add(str(event.runId))
            self._changed.notify_all()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Add a micro-batch to the totals, print it, and write the metrics."""
        step = event.progress
        if step.name not in self._names:
            return
        records, output = (step.observedMetrics.get(name) for name in (RECORDS, OUTPUT))
        if records is not None:
            self.rows_in += records["rows"]
            self.bad_records += records["bad"]
        if output is not None:
            self.rows_out += output["rows"]
        if records is not None:
            self._report(step)

    def _report(self, step: Any) -> None:
        source = step.sources[0]
        behind = self._offsets_behind(source)
        lag = "" if behind is None else f", {behind} offsets behind"
        print(
            f"{self._pipeline}: batch {step.batchId}, {step.numInputRows} rows, "
            f"{step.processedRowsPerSecond:.0f} rows/s, offsets {compact(source.endOffset)}{lag}",
            file=sys.stderr,
        )
        if self._metrics is not None:
            values = {
                "rows_in_total": float(self.rows_in),
                "rows_out_total": float(self.rows_out),
                "bad_records_total": float(self.bad_records),
                "batch_id": float(step.batchId),
                "rows_per_second": float(step.processedRowsPerSecond),
                "batch_seconds": float(step.batchDuration) / 1000,
            }
            if behind is not None:
                values["offsets_behind_max"] = float(behind)
            write_metrics(self._metrics, self._pipeline, values)

    def _offsets_behind(self, source: Any) -> int | None:
        """Return the lag of the partition that is furthest behind; None if it is not known.

        Spark's kafka source reports it. Spark 4.0 takes no metrics from a Python source, so for
        `kledger` the listener asks where the topic ends, after the micro-batch.
        """
        reported = (source.metrics or {}).get("maxOffsetsBehindLatest")
        if reported is not None:
            return int(reported)
        if self._latest is None:
            return None
        try:
            return offsets_behind(_parsed(source.endOffset), self._latest())
        except (PipelineFailed, WrongCall):  # no server now, or the topic was deleted
            return None


def offsets_behind(reached: Offsets, latest: Offsets) -> int:
    """Return how many offsets the partition that is furthest behind has left."""
    left = (
        end - reached.get(topic, {}).get(partition, 0)
        for topic, partitions in latest.items()
        for partition, end in partitions.items()
    )
    return max([0, *left])  # below 0 where the tier has forgotten what was read


def compact(offset: Any) -> str:
    """Return offsets as one line without spaces, whatever form Spark gives them in."""
    return json.dumps(_parsed(offset), separators=(",", ":"))


def _parsed(offset: Any) -> Any:
    return json.loads(offset) if isinstance(offset, str) else offset


def end_run(summary: Summary, options: SourceOptions, begun: float) -> Summary:
    """Return the summary of a run that began at a monotonic time, with metrics if they are kept."""
    summary = dataclasses.replace(summary, duration_s=round(time.monotonic() - begun, 3))
    if options.metrics is not None:
        _write_summary_metrics(options.metrics, summary)
    return summary


def _write_summary_metrics(path: str, summary: Summary) -> None:
    values = {
        "rows_in_total": float(summary.rows_in),
        "rows_out_total": float(summary.rows_out),
        "bad_records_total": float(summary.bad_records),
        "duration_seconds": summary.duration_s,
    }
    write_metrics(path, summary.pipeline, values)


def write_metrics(path: str, pipeline: str, values: dict[str, float]) -> None:
    """Replace a file in the text format of Prometheus; a scraper sees the old or the new one."""
    lines = [
        line
        for name, value in values.items()
        for line in (
            f"# TYPE kledger_pipeline_{name} {'counter' if name.endswith('_total') else 'gauge'}",
            f'kledger_pipeline_{name}{{pipeline="{pipeline}"}} {value:g}',
        )
    ]
    arriving = Path(f"{path}.{os.getpid()}")
    arriving.write_text("\n".join(lines) + "\n", encoding="utf-8")
    arriving.replace(path)
