"""deduplicate: a topic without its duplicates, which come within a horizon, into another topic.

Rule: a record passes if no record of the same expression has passed whose event time is within the
horizon. Records of one expression are taken in the order of their offsets, so if they share a
partition, the result does not depend on where micro-batches end. Must not know: where records come
from.

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
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from pipelines.options import StreamOptions, duration, duration_ms, flag
from pipelines.results import bad_records_writers, to_topic
from pipelines.streaming import Writers, observed_output, observed_records, run_pipeline
from pipelines.summary import Summary
from pipelines.topic_source import topic_stream
from pipelines.values import bad_rows, reason_without, with_expression, with_texts

if TYPE_CHECKING:
    import pandas as pd

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
    return run_pipeline(spark, NAME, DeduplicateOptions, options, _writers, stop=stop)


def _writers(spark: SparkSession, options: DeduplicateOptions) -> Writers:
    frame = with_texts(topic_stream(spark, options))
    frame = with_expression(frame, "by", options.by, "by")
    frame = frame.withColumn("by", f.col("by").cast("string"))
    frame = frame.withColumn("reason", reason_without("by", "something to compare"))
    counted = observed_records(frame, f.col("reason").isNotNull())
    passed = _first_ones(counted.where(f.col("reason").isNull()), options.within)
    main = to_topic(spark, observed_output(passed), options.to, options)
    return {"": main} | bad_records_writers(spark, bad_rows(frame), options)


def _first_ones(records: DataFrame, within: str) -> DataFrame:
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
        .transformWithStateInPandas(FirstOfKey(duration_ms(within)), _PASSED, "Append", "EventTime")
        .withColumn("headers", f.from_json("headers", _HEADERS))
    )  # fmt: skip


class FirstOfKey(StatefulProcessor):
    """Lets the first record of an expression pass, and none for a while; runs on executors.

    The state is the event time of the last record that passed, with a timer for its end.
    """

    def __init__(self, horizon_ms: int) -> None:
        """Args: horizon_ms: two records whose times are at most so far apart are duplicates."""
        self._horizon_ms = horizon_ms
        self._handle: Any = None
        self._last: Any = None

    def init(self, handle: Any) -> None:
        """Open the state."""
        self._handle = handle
        self._last = handle.getValueState("last", "time_ms long")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: "Iterator[pd.DataFrame]",
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> "Iterator[pd.DataFrame]":
        """Yield the rows of a micro-batch that pass; those of one expression are in memory."""
        import pandas as pd

        batch = pd.concat(list(rows)).sort_values(["offset", "partition"])
        before = int(self._last.get()[0]) if self._last.exists() else None
        times_ms = [int(each) for each in batch["time_ms"]]
        passing, last = pass_first(times_ms, before, self._horizon_ms)
        if last is not None and last != before:
            self._last.update((last,))
            watermark = timerValues.getCurrentWatermarkInMs()
            self._handle.registerTimer(max(last + self._horizon_ms, watermark) + 1)
        yield batch.loc[passing, ["key", "value", "headers", "timestamp"]]

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: N803 - Spark's name
        expiredTimerInfo: Any,  # noqa: N803 - Spark's name
    ) -> "Iterator[pd.DataFrame]":
        """Forget a time that is too far back for any record that is not late."""
        if self._last.exists():
            end = int(self._last.get()[0]) + self._horizon_ms
            if end < timerValues.getCurrentWatermarkInMs():
                self._last.clear()
        return iter(())

    def close(self) -> None:
        """Nothing is open."""


def pass_first(
    times_ms: list[int], last: int | None, horizon_ms: int
) -> tuple[list[bool], int | None]:
    """Decide which records of one expression pass.

    Args:
        times_ms: their event times, in the order of their offsets.
        last: the time of the last one that passed before; None if that is forgotten.
        horizon_ms: two records whose times are at most so far apart are duplicates.

    Returns:
        Whether each passes, and the time of the last one that did.
    """
    passing = []
    for time_ms in times_ms:
        is_first = last is None or abs(time_ms - last) > horizon_ms
        if is_first:
            last = time_ms if last is None else max(last, time_ms)
        passing.append(is_first)
    return passing, last
