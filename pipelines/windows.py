"""windows: counts, sums and percentiles of a topic per window of event time.

Rule: a window is written once, when it is closed: when records `late` behind its end cannot come
any more. Later ones are dropped, and counted by Spark. Must not know: where the results go.

Columns: `window_start, window_end, key, count, sum, min, max, p50, p90, p99`. A percentile is the
smallest value that at least so many percent of the values do not exceed; above PERCENTILE_ACCURACY
values in a window it is approximate, by one part in that many.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pipelines.options import StreamOptions, duration, flag
from pipelines.results import bad_records_writers, to_folder, to_topic
from pipelines.streaming import Writers, observed_output, observed_records, run_pipeline
from pipelines.summary import Summary
from pipelines.topic_source import topic_stream
from pipelines.values import bad_rows, reason_without, with_expression, with_texts

NAME: Final = "windows"
PERCENTILE_ACCURACY: Final = 10_000
"""Bounds the state of a window: no more values than this are kept of it."""
_PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsOptions(StreamOptions):
    """The flags of `windows`."""

    to: str = flag("a topic, or with a slash a folder, for the results")
    window: str = flag("the length of a window, such as '5 minutes'", parse=duration)
    late: str = flag("how late records may come, such as '10 minutes'", parse=duration)
    by: str | None = flag(
        "what results are grouped by, an expression over key, value, …; without it the key",
        default=None,
    )
    value: str | None = flag(
        "the number that is summed up, an expression; without it the value, where it is a number",
        default=None,
    )


OPTIONS = WindowsOptions


def run(
    spark: SparkSession, options: Mapping[str, object], *, stop: threading.Event | None = None
) -> Summary:
    """Aggregate a topic until all that is there is read, or until `stop` is set.

    Args:
        spark: a session with the connector of the source.
        options: by the names of the flags, with underscores.
        stop: set by another thread or a signal handler.

    Raises:
        WrongCall: an option is wrong.
        PipelineFailed: a query failed; the next run goes on.
    """
    return run_pipeline(spark, NAME, WindowsOptions, options, _writers, stop=stop)


def _writers(spark: SparkSession, options: WindowsOptions) -> Writers:
    records = _numbers(topic_stream(spark, options), options)
    counted = observed_records(records, f.col("reason").isNotNull())
    results = observed_output(_aggregated(counted, options))
    if "/" in options.to:
        main = to_folder(spark, results, options.to, options)
    else:
        value = f.to_json(f.struct(*results.columns)).alias("value")
        main = to_topic(spark, results.select("key", value), options.to, options)
    return {"": main} | bad_records_writers(spark, bad_rows(records), options)


def _numbers(records: DataFrame, options: WindowsOptions) -> DataFrame:
    """Add what is grouped by, the number, and why a record cannot be used."""
    frame = with_texts(records)
    frame = with_expression(frame, "by", options.by or "key", "group")
    frame = with_expression(frame, "value", options.value or "value", "number")
    frame = frame.withColumn("group", f.col("group").cast("string"))
    frame = frame.withColumn("number", f.col("number").cast("double"))
    reasons = []
    if options.value is not None:
        reasons.append(reason_without("number", "a number"))
    if options.by is not None:
        reasons.append(reason_without("group", "something to group by"))
    return frame.withColumn("reason", f.coalesce(f.lit(None).cast("string"), *reasons))


def _aggregated(records: DataFrame, options: WindowsOptions) -> DataFrame:
    number = f.col("number")
    percentiles = [
        f.percentile_approx(number, share, PERCENTILE_ACCURACY).alias(name)
        for name, share in _PERCENTILES.items()
    ]
    return (
        records.where(f.col("reason").isNull())
        .withWatermark("timestamp", options.late)
        .groupBy(f.window("timestamp", options.window).alias("window"), f.col("group").alias("key"))
        .agg(
            f.count(f.lit(1)).alias("count"),
            f.sum(number).alias("sum"),
            f.min(number).alias("min"),
            f.max(number).alias("max"),
            *percentiles,
        )
        .select(
            f.col("window.start").alias("window_start"),
            f.col("window.end").alias("window_end"),
            "key", "count", "sum", "min", "max", *_PERCENTILES,
        )
    )  # fmt: skip
