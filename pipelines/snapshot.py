"""snapshot: a topic as a table, the last value of each key.

Rule: the log is folded by offset: of the records of a key the last one counts, and a key whose last
record has no value is not in the table. A new snapshot replaces the old one when it is whole.
Must not know: what the values mean. A record without a key is a bad one.

Columns: `key`, `value`, as bytes.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from pipelines.batch_files import check_table_folder, replace_files
from pipelines.errors import WrongCall
from pipelines.options import SourceOptions, flag, milliseconds, read_options
from pipelines.progress import end_run
from pipelines.streaming import configured
from pipelines.summary import Summary
from pipelines.topic_source import source_ends, topic_table
from pipelines.values import bad_rows, with_texts

NAME: Final = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOptions(SourceOptions):
    """The flags of `snapshot`."""

    to: str = flag("the folder of the table")
    at: str | None = flag(
        'offsets to end before, as {"topic": {"0": 42}}; -1 stands for the end', default=None
    )
    at_time: int | None = flag(
        "milliseconds since 1970; later records do not count", default=None, parse=milliseconds
    )


OPTIONS = SnapshotOptions


def run(
    spark: SparkSession,
    options: Mapping[str, object],
    *,
    stop: threading.Event | None = None,
) -> Summary:
    """Write the table that a topic is, now or at offsets or at a time.

    Args:
        spark: a session with the connector of the source.
        options: by the names of the flags, with underscores.
        stop: not used; a batch runs to its end.

    Raises:
        WrongCall: an option is wrong, or the folder holds other files than those of a snapshot.
    """
    chosen, begun = read_options(SnapshotOptions, options), time.monotonic()
    if chosen.at is not None and chosen.at_time is not None:
        raise WrongCall("options 'at' and 'at_time' exclude each other")
    check_table_folder(spark, chosen.to)
    ends = source_ends(chosen, chosen.at)
    seen, written = Observation(), Observation()
    with configured(spark):
        records = topic_table(spark, chosen, endingOffsets=json.dumps(ends))
        if chosen.at_time is not None:
            records = records.where(f.unix_millis("timestamp") <= chosen.at_time)
        has_no_key = f.col("key").isNull()
        rows, bad = f.count(f.lit(1)).alias("rows"), f.count_if(has_no_key).alias("bad")
        table = last_values(records.observe(seen, rows, bad).where(~has_no_key))
        replace_files(spark, table.observe(written, rows), chosen.to)
        if chosen.bad_records is not None:
            unkeyed = with_texts(records.where(has_no_key)).withColumn("reason", f.lit("no key"))
            bad_rows(unkeyed).write.mode("append").parquet(chosen.bad_records)
    summary = Summary(
        pipeline=NAME,
        rows_in=seen.get["rows"],
        rows_out=written.get["rows"],
        bad_records=seen.get["bad"],
        offsets=ends,
    )
    return end_run(summary, chosen, begun)


def last_values(records: DataFrame) -> DataFrame:
    """Return key and value of the last record of each key, unless that has no value.

    Within a partition the offset decides. A key that is in several partitions has no order between
    them, so there the timestamp does.
    """
    last = f.max_by(f.struct("value", "timestamp"), "offset").alias("last")
    of_partition = records.groupBy("key", "partition").agg(last)
    newest = f.max_by("last.value", f.struct("last.timestamp", "partition")).alias("value")
    return of_partition.groupBy("key").agg(newest).where(f.col("value").isNotNull())
