"""Writing to topics from Spark: every task writes a transaction, and the driver ends them.

Rule: a task leaves its transaction open; the driver commits all of them when all tasks are done, or
aborts them. So rows of a failed write are never visible to read_committed readers.

A micro-batch of a stream may be written again: a task is retried, or the driver dies before its
checkpoint says that the batch is done. Its identity is (query, batch, split). Each transaction also
commits `batch + 1` as the offset of the group `kledger-spark-QUERY-SPLIT`, so a split that was
committed is known by that offset, and is not written again. Must not know: how rows were computed.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from kledger.batches.builder import NewRecord
from kledger.broker_client.broker_connection import ConnectionLost
from kledger.broker_client.broker_connections import KafkaFailed
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.native.client.partitioner import partition_of_key
from kledger.runtime.clock import SystemClock
from kledger.spark.kafka_client import KafkaClient
from kledger.spark.offset_range import KafkaPartition
from kledger.spark.sink_options import SinkOptions
from kledger.spark.source_options import InvalidOption
from kledger.spark.transaction import (
    Transaction,
    TransactionHandle,
    abort_open,
    committed_offset,
    end_transaction,
    wait_visible,
)
from kledger.spark.worker_imports import drop_finders_of_spark

BATCH_BYTES: Final = 512 << 10
"""Records are sent when there are so many bytes of them; brokers take batches of 1 MiB."""
PREFIX: Final = "kledger-spark-"
"""What transactional ids and groups begin with."""
_RECORD_BYTES: Final = 20
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_MICROSECONDS: Final = 1000


class TaskWritten(WriterCommitMessage):
    """What a task returns to the driver.

    Attributes:
        handle: of its open transaction, None if there was nothing to write.
        name: what the transactional ids of the whole write begin with.
    """

    def __init__(self, handle: TransactionHandle | None, name: str) -> None:
        self.handle, self.name = handle, name


class RecordRouter:
    """Which partition a row goes to: the one it names, by its key, or each in turn.

    Keys are spread as Kafka's clients do it; rows without one start at the split's number.
    """

    def __init__(self, client: KafkaClient, first: int) -> None:
        self._client, self._next = client, first
        self._counts: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, named: int | None) -> KafkaPartition:
        """Choose a partition.

        Raises:
            KafkaFailed: the topic does not exist.
            InvalidOption: the row names a partition that does not.
        """
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = self._client.topics([topic])[topic]
        if named is not None:
            if not 0 <= named < count:
                raise InvalidOption(f"partition {named} of {topic}, expected 0 to {count - 1}")
            return KafkaPartition(topic, named)
        if key is not None:
            return KafkaPartition(topic, partition_of_key(key, count))
        self._next += 1
        return KafkaPartition(topic, self._next % count)


class _TaskWriter:
    """The rows of one task, as records of one transaction."""

    def __init__(self, client: KafkaClient, options: SinkOptions, transaction: Transaction) -> None:
        self._options, self._transaction = options, transaction
        context = TaskContext.get()
        self._router = RecordRouter(client, context.partitionId() if context else 0)
        self._clock = SystemClock()
        self._records: dict[KafkaPartition, list[NewRecord]] = {}
        self._size = 0
        self.first: KafkaPartition | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of an Arrow batch, as soon as there are enough."""
        count = batch.num_rows
        nothing: list[Any] = [None] * count
        columns = {name: batch.column(name) for name in batch.schema.names}

        def of(name: str) -> list[Any]:
            return columns[name].to_pylist() if name in columns else nothing

        times = nothing
        if "timestamp" in columns:
            times = columns["timestamp"].cast(pa.int64()).to_pylist()
        headers = of("headers") if self._options.with_headers else nothing
        topics = nothing if self._options.topic is not None else of("topic")
        rows = zip(topics, of("partition"), times, of("key"), of("value"), headers, strict=True)
        for topic, partition, time_us, key, value, pairs in rows:
            self._add(
                self._router.partition(self._topic(topic), _bytes(key), partition),
                NewRecord(
                    _bytes(value),
                    _bytes(key),
                    self._clock.now_ms() if time_us is None else time_us // _MICROSECONDS,
                    [(each["key"], each["value"]) for each in pairs or ()],
                ),
            )

    def flush(self) -> None:
        """Write what is left."""
        if self._records:
            self._transaction.produce(self._records, codec=self._options.codec)
            self._records, self._size = {}, 0

    def _add(self, where: KafkaPartition, record: NewRecord) -> None:
        self.first = self.first or where
        self._records.setdefault(where, []).append(record)
        self._size += _RECORD_BYTES + sum(len(part) for part in record[:2] if part is not None)
        self._size += sum(len(name) + len(value or b"") for name, value in record.headers)
        if self._size >= BATCH_BYTES:
            self.flush()

    def _topic(self, named: str | None) -> str:
        topic = self._options.topic or named
        if topic is None:
            raise InvalidOption("a row has no topic, and there is no option 'topic'")
        return topic


def _bytes(value: "bytes | str | None") -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def write_task(
    options: SinkOptions,
    batches: Iterator[pa.RecordBatch],
    *,
    name: str,
    split: int,
    attempt: int,
    mark: int | None = None,
) -> TaskWritten:
    """Write what a task has into a transaction that stays open; this runs on executors.

    Args:
        options: of the sink.
        batches: the rows.
        name: of the write; with the numbers of split and attempt it is the transactional id.
        split: which one the task writes.
        attempt: counts the attempts of a task; after a restart of the driver from 0 again.
        mark: the offset that the group of the split commits with the rows; if it is there already,
            they were written before, and nothing is.
    """
    drop_finders_of_spark()
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return TaskWritten(None, name)
    group = f"{name}{split}"
    with KafkaClient(options.servers, options.security) as client:
        # Beginning ends an earlier attempt, so what that has committed is known from here on.
        transaction = Transaction(
            client, f"{group}-{attempt}", timeout_ms=options.transaction_timeout_ms
        )
        if mark is not None and _committed(client, options, group, attempt) >= mark:
            return TaskWritten(None, name)
        try:
            writer = _TaskWriter(client, options, transaction)
            writer.write(first)
            for batch in batches:
                writer.write(batch)
            writer.flush()
            if mark is not None:
                assert writer.first is not None, "there is at least one row"
                transaction.commit_offset(group, writer.first, mark)
        except BaseException:
            # What is raised says more than a failure to clean up behind it.
            with suppress(KafkaFailed, ConnectionLost):
                transaction.abort()
            raise
    return TaskWritten(transaction.handle, name)


def _committed(client: KafkaClient, options: SinkOptions, group: str, attempt: int) -> int:
    """Return the offset of a group, after aborting attempts that nobody will end any more.

    An attempt that was killed behind its last request has an offset pending. Attempts of this
    process are killed or ended within the time that `committed_offset` waits.
    """
    try:
        return committed_offset(client, group)
    except KafkaFailed as error:
        if error.code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
            raise
    abort_open(
        client, f"{group}-", timeout_ms=options.transaction_timeout_ms, but=f"{group}-{attempt}"
    )
    return committed_offset(client, group)


def end_all(options: SinkOptions, messages: "list[Any]", *, name: str, is_commit: bool) -> None:
    """End the transactions of all tasks, on the driver.

    Args:
        options: of the sink.
        messages: what the tasks returned; None for one that failed.
        name: what the transactional ids of this write begin with. Attempts that were killed, for
            example since another one was quicker, have left theirs open; they are aborted.
        is_commit: make the rows visible. They are when this returns.
    """
    with KafkaClient(options.servers, options.security) as client:
        for message in messages:
            if message is not None and message.handle is not None:
                try:
                    end_transaction(client, message.handle, is_commit=is_commit)
                except KafkaFailed:
                    if is_commit:
                        raise
                    # It is not open any more, which is what an abort is for.
        abort_open(client, name, timeout_ms=options.transaction_timeout_ms)
        wait_visible(client, name)


class BatchSink(DataSourceArrowWriter):
    """The write of a batch: once, whole or not at all."""

    def __init__(self, options: SinkOptions, write_id: str) -> None:
        """Args: write_id: unique for each write at a time."""
        self._options, self._name = options, f"{write_id}-"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task."""
        context = TaskContext.get()
        assert context is not None
        return write_task(
            self._options, iterator, name=self._name, split=context.partitionId(),
            attempt=context.attemptNumber(),
        )  # fmt: skip

    def commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        """Make all rows visible."""
        end_all(self._options, messages, name=self._name, is_commit=True)

    def abort(self, messages: "list[WriterCommitMessage | None]") -> None:
        """Make sure that none becomes visible."""
        end_all(self._options, messages, name=self._name, is_commit=False)


class StreamSink(DataSourceStreamWriter, DataSourceArrowWriter):
    """The write of micro-batches, each of them once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task, unless this split of the batch was committed before."""
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        assert query is not None, "Spark sets it for each task of a query"
        assert batch is not None, "Spark sets it for each task of a query"
        return write_task(
            self._options, iterator, name=f"{PREFIX}{query}-", split=context.partitionId(),
            attempt=context.attemptNumber(), mark=int(batch) + 1,
        )  # fmt: skip

    def commit(  # type: ignore[override] # a batch of a stream has a number
        self,
        messages: "list[WriterCommitMessage | None]",
        batchId: int,  # noqa: N803 - Spark's
    ) -> None:
        """Make all rows of the micro-batch visible."""
        self._end(messages, is_commit=True)

    def abort(  # type: ignore[override] # a batch of a stream has a number
        self,
        messages: "list[WriterCommitMessage | None]",
        batchId: int,  # noqa: N803 - Spark's
    ) -> None:
        """Make sure that none becomes visible."""
        self._end(messages, is_commit=False)

    def _end(self, messages: "list[Any]", *, is_commit: bool) -> None:
        # The driver's end does not know the query; without a message no task has got so far.
        for name in {message.name for message in messages if message is not None}:
            end_all(self._options, messages, name=name, is_commit=is_commit)
