"""deduplicate: a topic without its duplicates, which come within a horizon, into another topic.

Rule: a record passes if no record of the same expression has passed whose event time is within the
horizon. Records of one expression are taken in the order of their offsets, so if they share a
partition, the result does not depend on where micro-batches end. Must not know: where records come
from.

The state keeps the event times of the records of an expression that passed, each until the newest
event time is two to three horizons ahead; they are more than a horizon apart, so they are few. A
record that is more than a horizon behind the newest one is dropped as late, and Spark counts it:
whether it is a duplicate is not known any more. Expressions are divided into buckets by their hash,
and the state of a bucket is one text, because Spark spends milliseconds on a group in Python,
however few rows it has, and about one on each call for a state. It is a list of one text, as Spark
4.0 truncates long messages with a value now and then; lists are transferred as Arrow streams.
"""

import json
import threading
from bisect import bisect_left
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
_BUCKETS: Final = 64
"""How many groups Spark makes of all expressions."""
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
    processor = FirstRecords(duration_ms(within))
    return (
        records.withWatermark("timestamp", within)
        .select(
            f.pmod(f.xxhash64("by"), f.lit(_BUCKETS)).alias("bucket"),
            # Bytes, as a key that is cast to text need not be UTF-8.
            f.col("by").cast("binary").alias("by"),
            "partition", "offset", "timestamp",
            f.unix_millis("timestamp").alias("time_ms"),
            f.col("raw_key").alias("key"),
            f.col("raw_value").alias("value"),
            # Pandas has no type for a list of structs; bytes become base64 in JSON.
            f.to_json("headers").alias("headers"),
        )
        .groupBy("bucket")
        .transformWithStateInPandas(processor, _PASSED, "Append", "EventTime")
        .withColumn("headers", f.from_json("headers", _HEADERS))
    )  # fmt: skip


class FirstRecords(StatefulProcessor):
    """Lets the first record of each expression pass, and none for a while; runs on executors.

    The state of a bucket has the event times of the records that passed, by expression, and a timer
    for the end of the last one.
    """

    def __init__(self, horizon_ms: int) -> None:
        """Args: horizon_ms: two records whose times are at most so far apart are duplicates."""
        self._horizon_ms = horizon_ms
        self._handle: Any = None
        self._passed: Any = None

    def init(self, handle: Any) -> None:
        """Open the state."""
        self._handle = handle
        self._passed = handle.getListState("passed", "times_ms string")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: "Iterator[pd.DataFrame]",
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> "Iterator[pd.DataFrame]":
        """Yield the rows of a micro-batch that pass; those of one bucket are in memory."""
        import pandas as pd

        batch = pd.concat(list(rows)).sort_values(["offset", "partition"], ignore_index=True)
        times_ms = batch["time_ms"].tolist()
        watermark = timerValues.getCurrentWatermarkInMs()
        passing: list[int] = []
        newest = watermark
        bucket = self._times_ms()
        for key_bytes, group in batch.groupby("by", sort=False).indices.items():
            by = key_bytes.decode("latin-1")
            before = [t for t in bucket.get(by, ()) if t >= watermark - self._horizon_ms]
            firsts, passed = pass_first([times_ms[row] for row in group], before, self._horizon_ms)
            if passed != before:
                bucket[by] = passed
                newest = max(newest, passed[-1] + self._horizon_ms)
                passing += [row for row, is_first in zip(group, firsts, strict=True) if is_first]
        if passing:
            self._keep(bucket)
            # Whole horizons: a bucket has few timers, as one that is there is not added again.
            self._handle.registerTimer((newest // self._horizon_ms + 1) * self._horizon_ms)
        yield batch.loc[sorted(passing), ["key", "value", "headers", "timestamp"]]

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: N803 - Spark's name
        expiredTimerInfo: Any,  # noqa: N803 - Spark's name
    ) -> "Iterator[pd.DataFrame]":
        """Forget times that are too far back for any record that is not late."""
        end = timerValues.getCurrentWatermarkInMs() - self._horizon_ms
        self._keep({by: times for by, times in self._times_ms().items() if times[-1] >= end})
        return iter(())

    def close(self) -> None:
        """Nothing is open."""

    def _times_ms(self) -> dict[str, list[int]]:
        """Return the times of the records of the bucket that passed, by expression."""
        return {
            by: times for (text,) in self._passed.get() for by, times in json.loads(text).items()
        }

    def _keep(self, bucket: dict[str, list[int]]) -> None:
        if bucket:
            self._passed.put([(json.dumps(bucket, separators=(",", ":")),)])
        else:
            self._passed.clear()


def pass_first(
    times_ms: list[int], passed: list[int], horizon_ms: int
) -> tuple[list[bool], list[int]]:
    """Decide which records of one expression pass.

    Args:
        times_ms: their event times, in the order of their offsets.
        passed: the times of those that passed before, ascending.
        horizon_ms: two records whose times are at most so far apart are duplicates.

    Returns:
        Whether each passes, and the times of all that did, ascending.
    """
    passing, passed = [], passed.copy()
    for time_ms in times_ms:
        at = bisect_left(passed, time_ms - horizon_ms)
        is_first = at == len(passed) or passed[at] > time_ms + horizon_ms
        if is_first:
            passed.insert(at, time_ms)
        passing.append(is_first)
    return passing, passed
