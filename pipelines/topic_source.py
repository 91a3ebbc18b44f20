"""A topic as a DataFrame, by Spark's `kafka` source or by `kledger`.

Rule: both sources get the same options and give the same columns; only committed records are read.
Must not know: what a pipeline computes.
"""

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from kledger.spark import register
from kledger.spark import source_options as kledger_options
from kledger.spark.data_source import SplitPlanner
from kledger.spark.kafka_client import KafkaClient, KafkaFailed
from kledger.spark.tier_store import TierFailed
from pipelines.batch_limit import OFFSETS_DEFAULT, offsets_per_trigger, sample_topic
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
    limit = options.max_offsets_per_trigger or _sampled_limit(options)
    reader = reader.option("maxOffsetsPerTrigger", limit)
    frame: DataFrame = reader.options(**options.option).load()
    return frame.select(*COLUMNS)


def _sampled_limit(options: StreamOptions) -> int:
    """Return a limit by the size of the records; a fixed one where our client cannot see them."""
    given = {name.lower(): value for name, value in options.option.items()}
    is_plain = given.get("kafka.security.protocol", "PLAINTEXT").upper() == "PLAINTEXT"
    if not is_plain or given.get("mode") == "direct":
        return OFFSETS_DEFAULT
    try:
        with KafkaClient(options.servers) as client:
            return offsets_per_trigger(sample_topic(client, options.topic))
    except ValueError as error:
        raise WrongCall(str(error)) from error
    except (KafkaFailed, OSError) as error:
        raise PipelineFailed(str(error)) from error


def topic_table(spark: SparkSession, options: SourceOptions, **bounds: str) -> DataFrame:
    """Read what is in a topic, between the bounds that are given as options of the source."""
    register(spark)
    reader = _with_options(spark.read, options).options(**bounds)
    frame: DataFrame = reader.options(**options.option).load()
    return frame.select(*COLUMNS)


def source_ends(options: SourceOptions, at: str | None = None) -> Offsets:
    """Return where a read of the source ends: at offsets that are given, or at what is there now.

    Args:
        options: servers, topic and source; options of `kledger` may say that it reads a tier.
        at: offsets in the form of Spark's kafka source, -1 for the end; None for all ends.

    Raises:
        WrongCall: the offsets have another form, or do not name each partition.
        PipelineFailed: there is no such topic, or no server.
    """
    given = options.option if options.source == "kledger" else {}
    return _ends(options, given if at is None else {**given, "endingOffsets": at})


def topic_ends(options: SourceOptions) -> Offsets:
    """Return where what is committed in a topic ends now, by its broker.

    Raises:
        PipelineFailed: there is no such topic, or no server.
    """
    return _ends(options, {})


def _ends(options: SourceOptions, given: Mapping[str, str]) -> Offsets:
    named = {"servers": options.servers, "subscribe": options.topic}
    try:
        planner = SplitPlanner(kledger_options.read_options({**named, **given}))
        try:
            lookup = planner.lookup
            return kledger_options.offsets_json(lookup.end(lookup.partitions()))
        finally:
            planner.close()
    except ValueError as error:
        raise WrongCall(str(error)) from error
    except (KafkaFailed, TierFailed, OSError) as error:
        raise PipelineFailed(str(error)) from error


def _with_options(reader: Any, options: SourceOptions) -> Any:
    reader = reader.format(options.source)
    if options.source == "kafka":
        reader = reader.option("kafka.bootstrap.servers", options.servers)
    else:
        reader = reader.option("servers", options.servers)
    reader = reader.option("subscribe", options.topic).option("includeHeaders", "true")
    return reader.option("kafka.isolation.level", "read_committed")
