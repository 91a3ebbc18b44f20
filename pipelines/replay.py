"""replay: Parquet files, such as those of an archive, back into a topic.

Rule: records of one source partition keep their order; all of them are one write, which is visible
as a whole or not at all. At the end the records are counted where they were written. A run that was
killed leaves open transactions, behind which readers wait; the next run of the same folder into the
same topic aborts them first.
Must not know: what the values mean.

Columns: `value`, and where they are there `key`, `headers`, `timestamp`, `topic`, `partition`,
`offset`, as in Spark's kafka source.
"""

import hashlib
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from kledger.spark import register
from kledger.spark.sink import PREFIX
from kledger.spark.sink_options import TRANSACTION_TIMEOUT_MS
from kledger.spark.transaction import abort_open
from pipelines.errors import PipelineFailed, WrongCall
from pipelines.options import SourceOptions, flag, read_options
from pipelines.progress import end_run
from pipelines.streaming import configured, first_line
from pipelines.summary import Offsets, Summary
from pipelines.topic_source import broker_client, security_options, topic_ends, topic_table

NAME: Final = "replay"
_ORDER: Final = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions(SourceOptions):
    """The flags of `replay`."""

    from_: str = flag("the folder with the Parquet files")
    keep_timestamps: bool = flag("write the records' own timestamps", default=False, parse=bool)
    keep_partitions: bool = flag(
        "write records to the partitions they came from, in place of those of their keys",
        default=False,
        parse=bool,
    )


OPTIONS = ReplayOptions


def run(
    spark: SparkSession,
    options: Mapping[str, object],
    *,
    stop: threading.Event | None = None,
) -> Summary:
    """Write all records of a folder into an existing topic.

    Args:
        spark: a session with the connector of the source, which counts what was written.
        options: by the names of the flags, with underscores (`from` for `--from`).
        stop: not used; a batch runs to its end.

    Raises:
        WrongCall: an option is wrong, the folder has no records, or the topic too few partitions.
        PipelineFailed: nothing was written; or other numbers are in the topic than were read.
    """
    chosen, begun = read_options(ReplayOptions, options), time.monotonic()
    write_id = _write_id(chosen)
    _abort_killed(chosen, write_id)
    before = topic_ends(chosen)
    register(spark)
    read = Observation()
    with configured(spark):
        records = _ordered(_records(spark, chosen, len(before[chosen.topic])))
        counted = records.observe(read, f.count(f.lit(1)).alias("rows"))
        writer = counted.select(_written(records, chosen)).write.format("kledger").mode("append")
        writer = writer.option("servers", chosen.servers).option("topic", chosen.topic)
        writer = writer.option("includeHeaders", "true").option("kafka.transactional.id", write_id)
        writer = writer.options(**security_options(chosen))
        try:
            writer.save()
        except (PySparkException, Py4JJavaError) as error:
            raise PipelineFailed(f"nothing was written: {first_line(error)}") from error
        after = topic_ends(chosen)
        found = _count(spark, chosen, before, after)
    rows = read.get["rows"]
    if found < rows:
        raise PipelineFailed(f"{chosen.topic} got {found} records, expected {rows}")
    summary = Summary(
        pipeline=NAME,
        rows_in=rows,
        rows_out=rows,
        offsets=after,
    )
    return end_run(summary, chosen, begun)


def _write_id(options: ReplayOptions) -> str:
    """Return what the transactional ids of a folder's replays into a topic begin with."""
    names = f"{options.topic}\n{options.from_.rstrip('/')}"
    return f"{PREFIX}replay-{hashlib.sha256(names.encode()).hexdigest()[:16]}"


def _abort_killed(options: ReplayOptions, write_id: str) -> None:
    with broker_client(options) as client:
        abort_open(client, f"{write_id}-", timeout_ms=TRANSACTION_TIMEOUT_MS)


def _records(spark: SparkSession, options: ReplayOptions, partition_count: int) -> DataFrame:
    try:
        records = spark.read.parquet(options.from_)
    except PySparkException as error:
        raise WrongCall(f"option 'from': {first_line(error)}") from error
    if "value" not in records.columns:
        there = ", ".join(records.columns)
        raise WrongCall(f"option 'from': {options.from_} has no column 'value', but {there}")
    needed = {"keep_timestamps": "timestamp", "keep_partitions": "partition"}
    for option, column in needed.items():
        if getattr(options, option) and column not in records.columns:
            raise WrongCall(f"option {option!r}: {options.from_} has no column {column!r}")
    if options.keep_partitions:
        highest = records.agg(f.max("partition")).first()
        assert highest is not None, "an aggregate has one row"
        if (highest[0] or 0) >= partition_count:
            raise WrongCall(
                f"option 'keep_partitions': the records are of {highest[0] + 1} partitions, "
                f"{options.topic} has {partition_count}"
            )
    return records


def _ordered(records: DataFrame) -> DataFrame:
    """Let one task write all records of a partition, in the order of their offsets."""
    if not set(_ORDER) <= set(records.columns):
        return records
    return records.repartition("topic", "partition").sortWithinPartitions(*_ORDER)


def _written(records: DataFrame, options: ReplayOptions) -> list[str]:
    wanted = {"key", "value", "headers"}
    wanted |= {"timestamp"} if options.keep_timestamps else set()
    wanted |= {"partition"} if options.keep_partitions else set()
    return [name for name in records.columns if name in wanted]


def _count(spark: SparkSession, options: ReplayOptions, before: Offsets, after: Offsets) -> int:
    bounds = {"startingOffsets": json.dumps(before), "endingOffsets": json.dumps(after)}
    return topic_table(spark, options, **bounds).count()
