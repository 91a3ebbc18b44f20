"""A topic as a DataFrame, by Spark's `kafka` source or by `kledger`.

Rule: both sources get the same options and give the same columns; only committed records are read.
Must not know: what a pipeline computes.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from kledger.broker_client.broker_connections import KafkaFailed
from kledger.spark import register
from kledger.spark import source_options as kledger_options
from kledger.spark.data_source import SplitPlanner
from kledger.spark.kafka_client import KafkaClient
from kledger.spark.range_lookup import OffsetSource, RangeLookup
from kledger.spark.tier_reader import TieredTopics
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
    """Return a limit by the size of the records; a fixed one where our client cannot see them.

    Raises:
        PipelineFailed: there is no such topic, or no server.
    """
    given = {name.lower(): value for name, value in options.option.items()}
    if given.get("mode") == "direct":
        return OFFSETS_DEFAULT
    try:
        kledger_options.security_of(security_options(options))
    except kledger_options.InvalidOption:
        return OFFSETS_DEFAULT  # Spark's kafka source has more logins and kinds of stores
    with broker_client(options) as client:
        return offsets_per_trigger(sample_topic(client, options.topic))


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


def latest_ends(options: SourceOptions) -> Offsets:
    """Return where the source ends now; one attempt, for callers that do not wait for servers.

    Raises:
        WrongCall: an option is wrong.
        PipelineFailed: there is no such topic, or no server.
    """
    with _translated():
        chosen = _source_options(options, options.option)
        if chosen.tier is not None:
            return _latest(TieredTopics(chosen.tier), chosen)
        with KafkaClient(chosen.servers, chosen.security, retries=0) as client:
            return _latest(client, chosen)


def _latest(source: OffsetSource, chosen: kledger_options.SourceOptions) -> Offsets:
    lookup = RangeLookup(source, chosen)
    return kledger_options.offsets_json(lookup.latest(lookup.partitions()))


def security_options(options: SourceOptions) -> dict[str, str]:
    """Return the options for TLS and logins, which our own client and sink take as well.

    Others are for the source alone.
    """
    spelled = {name.lower(): name for name in kledger_options.SECURITY}
    given = {name.lower(): value for name, value in options.option.items()}
    return {spelled[name]: given[name] for name in spelled.keys() & given.keys()}


@contextmanager
def broker_client(options: SourceOptions) -> Iterator[KafkaClient]:
    """Open a client of the servers.

    Raises:
        WrongCall: an address or an option for TLS or the login is wrong.
        PipelineFailed: what the block asks the servers for has failed.
    """
    with _translated():
        security = kledger_options.security_of(security_options(options))
        with KafkaClient(options.servers, security) as client:
            yield client


def _ends(options: SourceOptions, given: Mapping[str, str]) -> Offsets:
    with _translated():
        planner = SplitPlanner(_source_options(options, given))
        try:
            lookup = planner.lookup
            return kledger_options.offsets_json(lookup.end(lookup.partitions()))
        finally:
            planner.close()


def _source_options(
    options: SourceOptions, given: Mapping[str, str]
) -> kledger_options.SourceOptions:
    named = {"servers": options.servers, "subscribe": options.topic, **security_options(options)}
    return kledger_options.read_options({**named, **given})


@contextmanager
def _translated() -> Iterator[None]:
    """Raise what our client and the tier raise as errors of a pipeline."""
    try:
        yield
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
