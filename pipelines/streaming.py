"""Running the streaming queries of a pipeline until they end or are stopped.

Rule: one main query, whose checkpoint says how far the pipeline is, and any number beside it.
Must not know: what the queries compute.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeAlias, TypeVar

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pipelines.errors import PipelineFailed
from pipelines.hadoop_files import HadoopFiles
from pipelines.options import StreamOptions, read_options
from pipelines.progress import OUTPUT, RECORDS, StreamProgress, end_run
from pipelines.summary import Offsets, Summary
from pipelines.topic_source import latest_ends, source_ends

_POLL_S: Final = 0.2
_AT_ONCE: Final = {"processingTime": "0 seconds"}
_IDLE: Final = "Waiting for data to arrive"
"""The status of a query without anything to do; see Spark's MicroBatchExecution."""
_CALLED: Final = "An error occurred while calling "  # what py4j says of every call that fails
_TRACEBACK: Final = "Traceback (most recent call last):"
# What a pipeline writes must not depend on the session of the caller.
_CONFIGURATION: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # State that does not fit into memory; a checkpoint keeps to what it was begun with.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


Writers: TypeAlias = Mapping[str, DataStreamWriter]
"""What queries write, by their names; the main one has the name ""."""
S = TypeVar("S", bound=StreamOptions)


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
    rows = f.count(f.lit(1)).alias("rows")
    bad = f.count_if(f.lit(False) if is_bad is None else is_bad).alias("bad")
    return frame.observe(RECORDS, rows, bad)


def observed_output(frame: DataFrame) -> DataFrame:
    """Count the rows of a stream before its sink."""
    return frame.observe(OUTPUT, f.count(f.lit(1)).alias("rows"))


def run_pipeline(
    spark: SparkSession,
    pipeline: str,
    options_class: type[S],
    given: Mapping[str, object],
    make_writers: Callable[[SparkSession, S], Writers],
    *,
    stop: threading.Event | None,
) -> Summary:
    """Run a streaming pipeline until all that is there is read, or until `stop` is set.

    Args:
        spark: the session.
        pipeline: its name, for the summary.
        options_class: the flags of the pipeline.
        given: options by the names of the flags, with underscores.
        make_writers: what the pipeline computes.
        stop: may be set by any thread or signal handler.

    Raises:
        WrongCall: an option is wrong.
        PipelineFailed: a query failed; the others were stopped, and the next run goes on.
    """
    options = read_options(options_class, given)
    with configured(spark):
        writers = make_writers(spark, options)
        return _run_streams(spark, pipeline, options, writers, stop or threading.Event())


def _run_streams(
    spark: SparkSession,
    pipeline: str,
    options: StreamOptions,
    writers: Writers,
    stop: threading.Event,
) -> Summary:
    begun = time.monotonic()
    names = {query: f"{pipeline}-{query}-{uuid.uuid4().hex[:8]}" for query in writers}
    latest = partial(latest_ends, options) if options.source == "kledger" else None
    listener = StreamProgress(pipeline, frozenset(names.values()), options.metrics, latest)
    ends = _ends(options)
    trigger = options.trigger if ends is None else _AT_ONCE
    spark.streams.addListener(listener)
    runs: list[_Run] = []
    try:
        try:
            for query, writer in writers.items():
                path = options.checkpoint_of(query)
                named = writer.queryName(names[query]).option("checkpointLocation", path)
                runs.append(_Run(spark, named.trigger(**trigger).start(), path))
            _wait(runs, ends, stop)
        finally:
            for run in runs:
                run.query.stop()
        listener.wait_ended([str(run.query.runId) for run in runs])
    finally:
        spark.streams.removeListener(listener)
    summary = Summary(
        pipeline=pipeline,
        rows_in=listener.rows_in,
        rows_out=listener.rows_out,
        bad_records=listener.bad_records,
        offsets=committed_offsets(spark, options.checkpoint),
    )
    return end_run(summary, options, begun)


def _ends(options: StreamOptions) -> Offsets | None:
    """Return the offsets at which the run ends; None: Spark ends it.

    With `availableNow` Spark 4.0 runs one micro-batch of a Python source, whatever its limit, and
    none behind it that would close windows. So such a source runs without, until it is there.
    """
    if options.available_now and options.source == "kledger":
        return source_ends(options)
    return None


def is_behind(reached: Offsets, ends: Offsets) -> bool:
    """Return whether offsets are at or behind some ends, in each partition."""
    return all(
        reached.get(topic, {}).get(partition, 0) >= end
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )


class _Run:
    """A started query, and how far it is."""

    def __init__(self, spark: SparkSession, query: StreamingQuery, checkpoint: str) -> None:
        self.query = query
        self._spark, self._checkpoint = spark, checkpoint
        self._reached_in: int | None = None

    def has_reached(self, ends: Offsets) -> bool:
        """Return whether everything before some ends was read, and nothing is left to do for it.

        That is so when Spark waits for data: it has looked for some after the ends were asked for.
        A topic that is written to all the time gives it no reason to wait; there, one more
        micro-batch behind the ends closed the windows that the watermark of the one before allows.
        """
        if self.query.status["message"] == _IDLE:
            return True
        batch = last_commit(self._spark, self._checkpoint)
        if batch is None:
            return False
        if self._reached_in is None:
            if is_behind(batch_offsets(self._spark, self._checkpoint, batch), ends):
                self._reached_in = batch
            return False
        return batch > self._reached_in


def _wait(runs: list[_Run], ends: Offsets | None, stop: threading.Event) -> None:
    while not stop.is_set():
        for run in runs:
            if not run.query.isActive:
                _raise_failure(run.query)
            elif ends is not None and run.has_reached(ends):
                run.query.stop()
        if not any(run.query.isActive for run in runs):
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
    if lines[0].startswith(_CALLED) and len(lines) > 1:
        return lines[1].removeprefix(": ")
    if lines[0].endswith(_TRACEBACK) and len(lines) > 1:
        # The frames are indented; the first line that is not is the error itself.
        return next((line for line in lines[1:] if line and not line.startswith(" ")), lines[0])
    return lines[0]


def committed_offsets(spark: SparkSession, checkpoint: str) -> Offsets:
    """Return how far a query is by its checkpoint; empty before its first batch."""
    batch = last_commit(spark, checkpoint)
    return {} if batch is None else batch_offsets(spark, checkpoint, batch)


def last_commit(spark: SparkSession, checkpoint: str) -> int | None:
    """Return the number of the last micro-batch that was committed; None before the first one.

    Source: Spark's MicroBatchExecution, which logs the offsets of batch N in `offsets/N` before it
    and `commits/N` behind it.
    """
    listed = HadoopFiles(spark, checkpoint).listed(f"{checkpoint.rstrip('/')}/commits/*")
    names = (path.rpartition("/")[2] for path in listed)
    return max((int(name) for name in names if name.isdigit()), default=None)


def batch_offsets(spark: SparkSession, checkpoint: str, batch: int) -> Offsets:
    """Return the ends of a micro-batch by its checkpoint."""
    path = f"{checkpoint.rstrip('/')}/offsets/{batch}"
    # The first line is the version, the second metadata; then one line for each source.
    lines = HadoopFiles(spark, checkpoint).read_text(path).splitlines()
    found: Offsets = {}
    for line in lines[2:]:
        if line != "-":
            found |= json.loads(line)
    return found
