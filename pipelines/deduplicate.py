"""deduplicate: a topic without its duplicates, which come within a horizon, into another topic.

Rule: a record passes if no record of the same expression has passed whose event time is within the
horizon. Records of one expression are taken in the order of their offsets, so the result does not
depend on where micro-batches are cut. Must not know: where records come from.

The state keeps one time for each expression, until the newest event time is two horizons ahead. A
record that is more than a horizon behind the newest one is dropped as late, and Spark counts it:
whether it is a duplicate is not known any more.
"""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupStateTimeout

from pipelines.options import StreamOptions, duration, duration_ms, flag, read_options
from pipelines.results import bad_records_writers, to_topic
from pipelines.streaming import configured, observed_output, observed_records, run_streams
from pipelines.summary import Summary
from pipelines.topic_source import topic_stream
from pipelines.values import bad_rows, reason_without, with_expression, with_texts

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

NAME: Final = "deduplicate"
_HEADERS: Final = "array<struct<key: string, value: binary>>"
_PASSED: Final = "key binary, value binary, headers string, timestamp timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeduplicateOptions(StreamOptions):
    """The flags of `deduplicate`."""

    to: str = flag("the topic for the records that pass")
    by: str = flag("what duplicates have in common, an expression over key, value, headers, …")
    within: str = flag("how far apart duplicates may be, such as '1 hour'", parse=duration)


OPTIONS = DeduplicateOptions


def run(
    spark: SparkSession, options: Mapping[str, object], *, stop: threading.Event | None = None
) -> Summary:
    """Copy a topic without duplicates until all is read, or until `stop` is set.

    Args:
        spark: a session with the connector of the source.
        options: by the names of the flags, with underscores.
        stop: set by another thread or a signal handler.

    Raises:
        WrongCall: an option is wrong.
        PipelineFailed: a query failed; the next run goes on.
    """
    chosen = read_options(DeduplicateOptions, options)
    with configured(spark):
        frame = with_texts(topic_stream(spark, chosen))
        frame = with_expression(frame, "by", chosen.by, "by")
        frame = frame.withColumn("by", f.col("by").cast("string"))
        frame = frame.withColumn("reason", reason_without("by", "something to compare"))
        counted = observed_records(frame, f.col("reason").isNotNull())
        passed = _first_ones(counted.where(f.col("reason").isNull()), chosen.within)
        main = to_topic(spark, observed_output(passed), chosen.to, chosen)
        writers = {"": main} | bad_records_writers(spark, bad_rows(frame), chosen)
        return run_streams(spark, NAME, chosen, writers, stop=stop or threading.Event())


def _first_ones(records: DataFrame, within: str) -> DataFrame:
    horizon_ms = duration_ms(within)

    def first_of_key(_: Any, frames: Any, state: "GroupState") -> Any:
        yield from pass_first(frames, state, horizon_ms)

    return (
        records.withWatermark("timestamp", within)
        .select(
            "by", "partition", "offset", "timestamp",
            f.unix_millis("timestamp").alias("time_ms"),
            f.col("raw_key").alias("key"),
            f.col("raw_value").alias("value"),
            # Pandas has no type for a list of structs; bytes become base64 in JSON.
            f.to_json("headers").alias("headers"),
        )
        .groupBy("by")
        .applyInPandasWithState(
            first_of_key, _PASSED, "time_ms long", "append", GroupStateTimeout.EventTimeTimeout
        )
        .withColumn("headers", f.from_json("headers", _HEADERS))
    )  # fmt: skip


def pass_first(
    frames: "Iterator[pd.DataFrame]", state: "GroupState", horizon_ms: int
) -> "Iterator[pd.DataFrame]":
    """Yield the rows of one expression that pass, and remember the time of the last one.

    Args:
        frames: the rows of a micro-batch, in any order; they are in memory together.
        state: holds the event time of the last row that passed.
        horizon_ms: two rows whose times are at most so far apart are duplicates.
    """
    import pandas as pd

    if state.hasTimedOut:
        state.remove()
        return
    rows = pd.concat(list(frames)).sort_values(["offset", "partition"])
    last: int | None = int(state.get[0]) if state.exists else None
    passing = []
    for time_ms in rows["time_ms"]:
        is_first = last is None or abs(time_ms - last) > horizon_ms
        if is_first:
            last = int(time_ms) if last is None else max(last, int(time_ms))
        passing.append(is_first)
    assert last is not None, "a group has at least one row"
    state.update((last,))
    state.setTimeoutTimestamp(max(last + horizon_ms, state.getCurrentWatermarkMs()) + 1)
    yield rows.loc[passing, ["key", "value", "headers", "timestamp"]]
