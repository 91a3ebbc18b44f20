"""archive: a topic as Parquet files by date, exactly once.

Rule: every record is in the folder of the day (UTC) of its timestamp, in files that belong to one
micro-batch; a batch that was cut is written again under the same names. Must not know: what the
values mean; an archive keeps every record as it is, so none of them is a bad one.

Columns: those of Spark's kafka source with headers, and `date`.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from pipelines.options import StreamOptions, flag
from pipelines.results import to_folder
from pipelines.streaming import Writers, observed_output, observed_records, run_pipeline
from pipelines.summary import Summary
from pipelines.topic_source import topic_stream

NAME: Final = "archive"
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions(StreamOptions):
    """The flags of `archive`."""

    to: str = flag("the folder of the archive")
    format: str = flag("the format of its files", default="parquet", choices=("parquet",))


OPTIONS = ArchiveOptions


def run(
    spark: SparkSession,
    options: Mapping[str, object],
    *,
    stop: threading.Event | None = None,
) -> Summary:
    """Archive a topic until all that is there is read, or until `stop` is set.

    Args:
        spark: a session with the connector of the source.
        options: by the names of the flags, with underscores.
        stop: set by another thread or a signal handler.

    Raises:
        WrongCall: an option is wrong, or the folder holds what another checkpoint wrote.
        PipelineFailed: the query failed; the next run goes on.
    """
    return run_pipeline(spark, NAME, ArchiveOptions, options, _writers, stop=stop)


def _writers(spark: SparkSession, options: ArchiveOptions) -> Writers:
    records = observed_output(observed_records(topic_stream(spark, options)))
    dated = records.withColumn("date", utc_date(records))
    return {"": to_folder(spark, dated, options.to, options, partition_by=("date",))}


def utc_date(frame: DataFrame) -> Column:
    """Return the day of a row's timestamp in UTC, whatever the time zone of the session."""
    days = f.floor(f.unix_millis(frame["timestamp"]) / _DAY_MS).cast("int")
    return f.date_from_unix_date(days)
