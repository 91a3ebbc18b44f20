"""A topic as a DataFrame, by Spark's `kafka` source or by `kledger`.

Rule: both sources get the same options and give the same columns; only committed records are read.
Must not know: what a pipeline computes.
"""

from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from kledger.spark import register
from kledger.spark import source_options as kledger_options
from kledger.spark.kafka_client import KafkaClient, KafkaFailed
from kledger.spark.range_lookup import RangeLookup
from pipelines.errors import PipelineFailed, WrongCall
from pipelines.options import SourceOptions, StreamOptions
from pipelines.summary import Offsets

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
COLUMNS: Final = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
)  # fmt: skip
"""The columns of Spark's kafka source, with headers."""


def topic_stream(spark: SparkSession, options: StreamOptions) -> DataFrame:
    """Read a topic as a stream, from its beginning on until the checkpoint says otherwise."""
    register(spark)
    reader = _with_options(spark.readStream, options)
    reader = reader.option("startingOffsets", "earliest")
    reader = reader.option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
    frame: DataFrame = reader.options(**options.option).load()
    return frame.select(*COLUMNS)


def topic_table(spark: SparkSession, options: SourceOptions, **bounds: str) -> DataFrame:
    """Read what is in a topic, between the bounds that are given as options of the source."""
    register(spark)
    reader = _with_options(spark.read, options).options(**bounds)
    frame: DataFrame = reader.options(**options.option).load()
    return frame.select(*COLUMNS)


def topic_ends(options: SourceOptions, at: str | None = None) -> Offsets:
    """Return where to end: at the offsets that are given, or at the end of what is committed now.

    Args:
        options: servers and topic.
        at: offsets in the form of Spark's kafka source, -1 for the end; None for all ends.

    Raises:
        WrongCall: the offsets have another form, or do not name each partition.
        PipelineFailed: there is no such topic, or no server.
    """
    given = {"servers": options.servers, "subscribe": options.topic}
    if at is not None:
        given["endingOffsets"] = at
    try:
        chosen = kledger_options.read_options(given)
        with KafkaClient(options.servers) as client:
            lookup = RangeLookup(client, chosen)
            return kledger_options.offsets_json(lookup.end(lookup.partitions()))
    except ValueError as error:
        raise WrongCall(str(error)) from error
    except (KafkaFailed, OSError) as error:
        raise PipelineFailed(str(error)) from error


def _with_options(reader: Any, options: SourceOptions) -> Any:
    reader = reader.format(options.source)
    if options.source == "kafka":
        reader = reader.option("kafka.bootstrap.servers", options.servers)
    else:
        reader = reader.option("servers", options.servers)
    reader = reader.option("subscribe", options.topic).option("includeHeaders", "true")
    return reader.option("kafka.isolation.level", "read_committed")
