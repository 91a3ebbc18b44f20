"""`format("kledger")`: Spark's Python data source over the records of topics.

Rule: the columns of Spark's kafka source in its order, then the position of a record; options under
its names. Spark starts a Python process for each step of planning, so a step imports what it needs
and nothing else. Must not know: how records are fetched and decoded.

    key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,
    timestampType int, [headers array<struct<key: string, value: binary>>,]
    ledger_id bigint, entry_id bigint, batch_index int

`batch_index` counts the records of a batch from 0. A Fetch response does not have ledgers and
entries, so `ledger_id` and `entry_id` are null in mode `broker`.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from kledger.spark.offset_range import EARLIEST, LATEST, KafkaPartition, OffsetRange, Offsets
from kledger.spark.range_lookup import RangeLookup
from kledger.spark.source_options import (
    InvalidOption,
    SourceOptions,
    offsets_json,
    offsets_of,
    read_options,
)
from kledger.spark.split_plan import limited_end, split_ranges
from kledger.spark.worker_imports import drop_finders_of_spark

if TYPE_CHECKING:
    from kledger.spark.kafka_client import KafkaClient
    from kledger.spark.sink import BatchSink, StreamSink
    from kledger.spark.sink_options import SinkOptions
    from kledger.spark.tier_reader import LedgerSplit, TieredTopics

_COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int,{headers} ledger_id bigint, entry_id bigint, batch_index int"
)
_HEADERS: Final = " headers array<struct<key: string, value: binary>>,"


class KledgerDataSource(DataSource):
    """What `format("kledger")` stands for."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kledger"

    def schema(self) -> str:
        """Return the columns; refuses wrong options when a frame is loaded, but for `storage.…`."""
        options = read_options(self.options)
        return source_schema(with_headers=options.with_headers)

    def reader(self, schema: StructType) -> "BatchReader":
        """Return the reader of a batch."""
        return BatchReader(read_options(self.options))

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802 - Spark's
        """Return the reader of a stream."""
        return StreamReader(read_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> "BatchSink":
        """Return the writer of a batch."""
        if overwrite:
            raise InvalidOption("mode 'overwrite': a topic can only be appended to")
        from kledger.runtime.entropy import SystemEntropy
        from kledger.spark.sink import PREFIX, BatchSink

        options = self._sink_options(schema)
        write_id = options.transactional_id or f"{PREFIX}{SystemEntropy().uuid4()}"
        return BatchSink(options, write_id)

    def streamWriter(  # noqa: N802 - Spark's
        self, schema: StructType, overwrite: bool
    ) -> "StreamSink":
        """Return the writer of a stream, in output mode append or update."""
        from kledger.spark.sink import StreamSink

        options = self._sink_options(schema)
        if options.transactional_id is not None:
            raise InvalidOption("option 'kafka.transactional.id' is for batches, not for streams")
        return StreamSink(options)

    def _sink_options(self, schema: StructType) -> "SinkOptions":
        from kledger.spark.sink_options import read_sink_options

        columns = {field.name: field.dataType.simpleString() for field in schema.fields}
        return read_sink_options(self.options, columns)


def source_schema(*, with_headers: bool) -> str:
    """Return the columns as Spark writes a schema."""
    return _COLUMNS.format(headers=_HEADERS if with_headers else "")


class SplitPartition(InputPartition):
    """What one task reads."""

    def __init__(self, split: "OffsetRange | LedgerSplit") -> None:
        super().__init__(split)


def _read(options: SourceOptions, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    """Read what a task has to; Spark runs one without a split if there is nothing to read."""
    drop_finders_of_spark()
    if partition is None:
        return iter(())
    split = partition.value
    if isinstance(split, OffsetRange):
        from kledger.spark.range_reader import RangeReader

        return RangeReader(options, split).read()
    assert options.tier is not None, "a split of a ledger is planned in mode direct"
    from kledger.spark.tier_reader import read_split

    return read_split(
        options.tier, split, with_headers=options.with_headers, is_committed=options.is_committed
    )


class SplitPlanner:
    """The driver's end of a read: offsets, and the splits between them."""

    def __init__(self, options: SourceOptions) -> None:
        """Prepare; the first question connects."""
        self._partitions_min = options.partitions_min
        self._client: KafkaClient | None = None
        self._tier: TieredTopics | None = None
        if options.tier is None:
            from kledger.spark import kafka_client

            self._client = kafka_client.KafkaClient(options.servers, options.security)
            self.lookup = RangeLookup(self._client, options)
        else:
            from kledger.spark import tier_reader

            self._tier = tier_reader.TieredTopics(options.tier)
            self.lookup = RangeLookup(self._tier, options)

    def splits(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Return what tasks read between offsets that are in the logs."""
        ranges = [OffsetRange(where, start[where], end[where]) for where in sorted(end)]
        found: Sequence[OffsetRange | LedgerSplit] = (
            split_ranges(ranges, self._partitions_min)
            if self._tier is None
            else self._tier.splits(ranges, self._partitions_min)
        )
        return [SplitPartition(each) for each in found]

    def close(self) -> None:
        """Close connections."""
        if self._client is not None:
            self._client.close()


class BatchReader(DataSourceReader):
    """A read of what is there, between two offsets in each partition."""

    def __init__(self, options: SourceOptions) -> None:
        if options.offsets_per_trigger_max is not None:
            raise InvalidOption("option 'maxOffsetsPerTrigger' is for streams, not for batches")
        if options.start is not None and options.start.everywhere == LATEST:
            raise InvalidOption("option 'startingOffsets': expected earliest or offsets in a batch")
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Plan the splits, on the driver."""
        planner = SplitPlanner(self._options)
        try:
            lookup = planner.lookup
            partitions = lookup.partitions()
            start = lookup.start(partitions, default=EARLIEST)
            return planner.splits(*lookup.within_logs(start, lookup.end(partitions)))
        finally:
            planner.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a split, on an executor."""
        return _read(self._options, partition)


class StreamReader(DataSourceStreamReader):
    """A read of what comes, from a micro-batch to the next.

    Spark 4.0 does not say from where on it wants the latest offset. But it plans an empty range at
    the last one after a restart, and each micro-batch before it runs it; both say where it is.
    """

    def __init__(self, options: SourceOptions) -> None:
        bound = options.end
        if bound.kind != "offsets" or bound.everywhere != LATEST:
            raise InvalidOption("a stream has no end: options 'ending…' are for batches")
        self._options = options
        self._planner: SplitPlanner | None = None
        self._reached: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new stream starts."""
        return offsets_json(self._position())

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the next micro-batch ends."""
        lookup, reached = self._plan().lookup, self._position()
        partitions = sorted({*lookup.partitions(), *reached})
        start, latest = self._with_new(reached, partitions), lookup.latest(partitions)
        if self._options.tier is None:  # of a tier, old ledgers go when they were read, too
            lookup.check_forward(start, latest)
        end = limited_end(start, latest, self._options.offsets_per_trigger_max)
        return offsets_json(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan the splits of a micro-batch, on the driver."""
        self._reached = last = offsets_of(end)
        first = self._with_new(offsets_of(start), sorted(last))
        read = {where: offset for where, offset in last.items() if offset > first[where]}
        if not read:
            return []
        planner = self._plan()
        planner.lookup.partitions()  # of a tier, reads what the manifests list now
        return planner.splits(
            *planner.lookup.within_logs({each: first[each] for each in read}, read)
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range, on an executor."""
        return _read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Offsets are in Spark's checkpoint; there is nothing to do."""

    def stop(self) -> None:
        """Close the connections."""
        if self._planner is not None:
            self._planner.close()

    def __getstate__(self) -> dict[str, Any]:
        """Executors get the options alone."""
        return {"_options": self._options, "_planner": None, "_reached": None}

    def _plan(self) -> SplitPlanner:
        if self._planner is None:
            self._planner = SplitPlanner(self._options)
        return self._planner

    def _position(self) -> Offsets:
        """Return how far the stream is; of a new one, where it starts."""
        if self._reached is None:
            lookup = self._plan().lookup
            self._reached = lookup.start(lookup.partitions(), default=LATEST)
        return self._reached

    def _with_new(self, reached: Offsets, partitions: list[KafkaPartition]) -> Offsets:
        """Add partitions that were made since; all their records are new."""
        new = [where for where in partitions if where not in reached]
        return reached | (self._plan().lookup.earliest(new) if new else {})
