"""Where a streaming pipeline writes: a topic or a folder, and a folder for bad records.

Rule: either target gets every micro-batch once, however often it is written.
Must not know: what the rows mean.
"""

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kledger.spark import register
from pipelines.batch_files import BatchFiles
from pipelines.options import StreamOptions
from pipelines.topic_source import security_options

BAD_RECORDS: Final = "bad-records"
"""The query that keeps bad records."""


def to_folder(
    spark: SparkSession,
    frame: DataFrame,
    folder: str,
    options: StreamOptions,
    *,
    query: str = "",
    partition_by: tuple[str, ...] = (),
) -> DataStreamWriter:
    """Return a writer of Parquet files.

    Args:
        spark: the session.
        frame: a stream.
        folder: where the files go.
        options: the topic that was read, which is part of the files' names, and the checkpoint.
        query: the name of the query.
        partition_by: columns that become folders.

    Raises:
        WrongCall: another checkpoint has written the same into the folder.
    """
    checkpoint = options.checkpoint_of(query)
    files = BatchFiles(spark, folder, checkpoint=checkpoint, partition_by=partition_by)
    files.claim(options.topic)

    def write(batch: DataFrame, number: int) -> None:
        files.write(batch, number, what=options.topic)

    return frame.writeStream.foreachBatch(write)


def to_topic(
    spark: SparkSession, frame: DataFrame, topic: str, options: StreamOptions
) -> DataStreamWriter:
    """Return a writer of records, in transactions of each micro-batch."""
    register(spark)
    return (
        frame.writeStream.format("kledger")
        .option("servers", options.servers)
        .option("topic", topic)
        .option("includeHeaders", "true")
        .options(**security_options(options))
    )


def bad_records_writers(
    spark: SparkSession, bad: DataFrame, options: StreamOptions
) -> dict[str, DataStreamWriter]:
    """Return a writer for bad records by the name of its query, if they are to be kept."""
    if options.bad_records is None:
        return {}
    writer = to_folder(spark, bad, options.bad_records, options, query=BAD_RECORDS)
    return {BAD_RECORDS: writer}
