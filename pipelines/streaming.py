"""Running the streaming queries of a pipeline until they end or are stopped.

Rule: one main query, whose checkpoint says how far the pipeline is, and any number beside it.
Must not know: what the queries compute.
"""

import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pipelines.errors import PipelineFailed
from pipelines.hadoop_files import HadoopFiles
from pipelines.options import StreamOptions
from pipelines.progress import OUTPUT, RECORDS, StreamProgress, write_summary_metrics
from pipelines.summary import Offsets, Summary
from pipelines.topic_source import topic_ends

_POLL_S: Final = 0.2
_TRACEBACK: Final = "Traceback (most recent call last):"
# What a pipeline writes must not depend on the session of the caller.
_CONFIGURATION: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


@contextmanager
def configured(spark: SparkSession) -> Iterator[None]:
    """Set what every pipeline relies on, for the length of a block."""
    before = {key: spark.conf.get(key, None) for key in _CONFIGURATION}
    try:
        for key, value in _CONFIGURATION.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def observed_records(frame: DataFrame, is_bad: Column | None = None) -> DataFrame:
    """Count the rows of a stream behind its source, and the bad ones."""
    rows, bad = (
        f.count(f.lit(1)).alias("rows"),
        f.count_if(f.lit(False) if is_bad is None else is_bad),
    )
    return frame.observe(RECORDS, rows, bad.alias("bad"))


def observed_output(frame: DataFrame) -> DataFrame:
    """Count the rows of a stream before its sink."""
    return frame.observe(OUTPUT, f.count(f.lit(1)).alias("rows"))


def run_streams(
    spark: SparkSession,
    pipeline: str,
    options: StreamOptions,
    writers: Mapping[str, DataStreamWriter],
    *,
    stop: threading.Event,
) -> Summary:
    """Run queries until they end by themselves, one fails, or `stop` is set.

    Args:
        spark: the session.
        pipeline: its name, for the summary.
        options: trigger, checkpoint, metrics.
        writers: by the folder of their checkpoint below that of the options; the main one is "".
        stop: may be set by any thread or signal handler.

    Raises:
        PipelineFailed: a query failed; the others were stopped.
    """
    begun = time.monotonic()
    names = {folder: f"{pipeline}-{folder}-{uuid.uuid4().hex[:8]}" for folder in writers}
    paths = {folder: _checkpoint(options, folder) for folder in writers}
    for folder, writer in writers.items():
        named = writer.queryName(names[folder]).option("checkpointLocation", paths[folder])
        named.trigger(**options.trigger)
    listener = StreamProgress(pipeline, frozenset(names.values()), options.metrics)
    spark.streams.addListener(listener)
    try:
        reached: list[Offsets] = []
        ends = _ends(options)
        while True:
            listener.wait_ended(_run_once(list(writers.values()), stop))
            before, reached = reached, [committed_offsets(spark, path) for path in paths.values()]
            if stop.is_set() or reached == before or all(is_behind(each, ends) for each in reached):
                break
    finally:
        spark.streams.removeListener(listener)
    summary = Summary(
        pipeline=pipeline,
        rows_in=listener.rows_in,
        rows_out=listener.rows_out,
        bad_records=listener.bad_records,
        offsets=committed_offsets(spark, options.checkpoint),
        duration_s=round(time.monotonic() - begun, 3),
    )
    if options.metrics is not None:
        write_summary_metrics(options.metrics, summary)
    return summary


def _checkpoint(options: StreamOptions, folder: str) -> str:
    return "/".join(filter(None, (options.checkpoint.rstrip("/"), folder)))


def _ends(options: StreamOptions) -> Offsets:
    """Return what a run has to read that needs several; see `data_source.StreamReader`."""
    if options.available_now and options.source == "kledger":
        return topic_ends(options)
    return {}


def is_behind(reached: Offsets, ends: Offsets) -> bool:
    """Tell whether offsets are at or behind some ends, in each partition."""
    return all(
        reached.get(topic, {}).get(partition, 0) >= end
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )


def _run_once(writers: list[DataStreamWriter], stop: threading.Event) -> list[str]:
    """Run queries until they end, one fails, or `stop` is set; return the ids of the runs."""
    queries: list[StreamingQuery] = []
    try:
        queries += [writer.start() for writer in writers]
        _wait(queries, stop)
    finally:
        for query in queries:
            query.stop()
    return [str(query.runId) for query in queries]


def _wait(queries: list[StreamingQuery], stop: threading.Event) -> None:
    while not stop.is_set():
        active = [query for query in queries if query.isActive]
        for query in queries:
            if not query.isActive:
                _raise_failure(query)
        if not active:
            return
        stop.wait(_POLL_S)


def _raise_failure(query: StreamingQuery) -> None:
    try:
        failure = query.exception()
    except StreamingQueryException as error:  # some versions raise what they should return
        failure = error
    if failure is not None:
        raise PipelineFailed(f"the streaming query failed: {first_line(failure)}") from failure


def first_line(error: BaseException) -> str:
    """Return what an error says, without the stack traces of Python workers and of the JVM."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if lines[0].endswith(_TRACEBACK) and len(lines) > 1:
        # The frames are indented; the first line that is not is the error itself.
        return next((line for line in lines[1:] if line and not line.startswith(" ")), lines[0])
    return lines[0]


def committed_offsets(spark: SparkSession, checkpoint: str) -> Offsets:
    """Return how far a query is by its checkpoint: the ends of the last batch that was committed.

    Empty before the first one. Source: Spark's MicroBatchExecution, which logs the offsets of batch
    N in `offsets/N` before it and `commits/N` behind it.
    """
    files = HadoopFiles(spark, checkpoint)
    folder = checkpoint.rstrip("/")
    names = (path.rpartition("/")[2] for path in files.listed(f"{folder}/commits/*"))
    done = [int(name) for name in names if name.isdigit()]
    if not done:
        return {}
    # The first line is the version, the second metadata; then one line for each source.
    lines = files.read_text(f"{folder}/offsets/{max(done)}").splitlines()
    found: Offsets = {}
    for line in lines[2:]:
        if line != "-":
            found |= json.loads(line)
    return found
