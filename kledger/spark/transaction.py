"""One transaction of a Kafka producer, which another process may end.

Rule: records are written once however often a request is sent again, by sequence numbers; the
transaction can be ended with its handle in any process, usually the driver, when all tasks are
done.
Must not know: Spark, rows.
"""

from functools import partial
from typing import Final, NamedTuple

from kledger.batches.builder import BatchProducer, NewRecord, build_batch
from kledger.broker_client.broker_connections import KafkaFailed, check
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kledger.gateway.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from kledger.gateway.wire.messages.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kledger.gateway.wire.messages.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kledger.gateway.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kledger.gateway.wire.messages.k25_add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from kledger.gateway.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from kledger.gateway.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kledger.gateway.wire.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kledger.spark.kafka_client import KafkaClient
from kledger.spark.offset_range import KafkaPartition

PRODUCE_TIMEOUT_MS: Final = 60_000
_GROUP, _TRANSACTION = 0, 1
_OPEN: Final = ["Ongoing"]
_ENDING: Final = ["PrepareCommit", "PrepareAbort"]


class TransactionHandle(NamedTuple):
    """What is needed to end a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Transaction:
    """An open transaction; it begins by ending an earlier one of the same id."""

    def __init__(self, client: KafkaClient, transactional_id: str, *, timeout_ms: int) -> None:
        """Begin.

        Args:
            client: not used by anyone else meanwhile.
            transactional_id: an earlier open transaction of this id is aborted, and its producer
                can do nothing more.
            timeout_ms: the broker aborts a transaction that is open for longer.

        Raises:
            KafkaFailed: the broker refused, for example the timeout.
        """
        self._client = client
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )

        def begin() -> TransactionHandle:
            coordinator = _coordinator(client, transactional_id, _TRANSACTION)
            found = client.ask(request, InitProducerIdResponse, coordinator)
            check(f"transactional id {transactional_id}", found.error_code)
            return TransactionHandle(transactional_id, found.producer_id, found.producer_epoch)

        self.handle = client.retried(begin)
        self._sequences: dict[KafkaPartition, int] = {}

    def produce(self, records: dict[KafkaPartition, list[NewRecord]], *, codec: int) -> None:
        """Write records, one batch for each partition, and wait until they are stored.

        Raises:
            KafkaFailed: a partition does not exist, a record is too large, or another producer
                has taken over.
        """
        new = [where for where in records if where not in self._sequences]
        if new:
            self._add_partitions(new)
            self._sequences |= dict.fromkeys(new, 0)
        batches = {
            where: build_batch(
                content,
                codec=codec,
                producer=BatchProducer(
                    self.handle.producer_id,
                    self.handle.producer_epoch,
                    self._sequences[where],
                    is_transactional=True,
                ),
            )
            for where, content in records.items()
        }
        for where, batch in batches.items():
            self._client.retried(partial(self._produce, where, batch))
            self._sequences[where] += len(records[where])

    def abort(self) -> None:
        """End the transaction without its records; one without any is not open for the broker."""
        if self._sequences:
            end_transaction(self._client, self.handle, is_commit=False)

    def commit_offset(self, group: str, where: KafkaPartition, offset: int) -> None:
        """Let a group's offset be committed together with the records."""
        handle = self.handle
        request = AddOffsetsToTxnRequest(
            transactional_id=handle.transactional_id,
            producer_id=handle.producer_id,
            producer_epoch=handle.producer_epoch,
            group_id=group,
        )
        partition = TxnOffsetCommitRequestPartition(
            partition_index=where.partition, committed_offset=offset
        )
        commit = TxnOffsetCommitRequest(
            transactional_id=handle.transactional_id,
            group_id=group,
            producer_id=handle.producer_id,
            producer_epoch=handle.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=where.topic, partitions=[partition])],
        )

        def attempt() -> None:
            coordinator = _coordinator(self._client, handle.transactional_id, _TRANSACTION)
            added = self._client.ask(request, AddOffsetsToTxnResponse, coordinator)
            check(f"group {group} in a transaction", added.error_code)
            coordinator = _coordinator(self._client, group, _GROUP)
            stored = self._client.ask(commit, TxnOffsetCommitResponse, coordinator)
            check(f"offset of group {group}", stored.topics[0].partitions[0].error_code)

        self._client.retried(attempt)

    def _add_partitions(self, partitions: list[KafkaPartition]) -> None:
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for where in partitions:
            empty = AddPartitionsToTxnTopic(name=where.topic, partitions=[])
            topics.setdefault(where.topic, empty).partitions.append(where.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.handle.transactional_id,
            v3_and_below_producer_id=self.handle.producer_id,
            v3_and_below_producer_epoch=self.handle.producer_epoch,
            v3_and_below_topics=list(topics.values()),
        )

        def attempt() -> None:
            coordinator = _coordinator(self._client, self.handle.transactional_id, _TRANSACTION)
            answer = self._client.ask(request, AddPartitionsToTxnResponse, coordinator)
            for topic in answer.results_by_topic_v3_and_below:
                for each in topic.results_by_partition:
                    where = KafkaPartition(topic.name, each.partition_index)
                    check(f"{where} in a transaction", each.partition_error_code)

        self._client.retried(attempt)

    def _produce(self, where: KafkaPartition, batch: bytearray) -> None:
        data = PartitionProduceData(index=where.partition, records=batch)
        request = ProduceRequest(
            transactional_id=self.handle.transactional_id,
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=where.topic, partition_data=[data])],
        )
        answer = self._client.ask(request, ProduceResponse, self._client.leader(where))
        stored = answer.responses[0].partition_responses[0]
        # The batch is there from an earlier attempt, whose response was lost.
        if stored.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            check(f"write to {where}", stored.error_code)


def end_transaction(client: KafkaClient, handle: TransactionHandle, *, is_commit: bool) -> None:
    """End a transaction that some process began.

    Raises:
        KafkaFailed: it is not open any more: it took longer than its timeout, or another attempt
            of the same task took over.
    """
    request = EndTxnRequest(
        transactional_id=handle.transactional_id,
        producer_id=handle.producer_id,
        producer_epoch=handle.producer_epoch,
        committed=is_commit,
    )

    def attempt() -> None:
        coordinator = _coordinator(client, handle.transactional_id, _TRANSACTION)
        answer = client.ask(request, EndTxnResponse, coordinator)
        check(f"end of transaction {handle.transactional_id}", answer.error_code)

    client.retried(attempt)


def abort_open(
    client: KafkaClient, prefix: str, *, timeout_ms: int, but: str | None = None
) -> None:
    """Abort the transactions that are open under transactional ids with a prefix.

    Their producers can do nothing more. An attempt that was killed cannot end its own.

    Args:
        client: not used by anyone else meanwhile.
        prefix: of transactional ids.
        timeout_ms: as for a new transaction.
        but: an id whose transaction is left alone.
    """
    for found in open_transactions(client, prefix):
        if found != but:
            Transaction(client, found, timeout_ms=timeout_ms)


def open_transactions(client: KafkaClient, prefix: str) -> list[str]:
    """Return the transactional ids with a prefix whose transaction is open, in order."""
    return client.retried(lambda: _ids_in(client, prefix, _OPEN))


def wait_visible(client: KafkaClient, prefix: str) -> None:
    """Wait until transactions that were ended are visible to read_committed readers, or hidden.

    A coordinator answers when the outcome is durable, and then writes the markers.

    Raises:
        KafkaFailed: the coordinator has not written them for a minute.
    """

    def attempt() -> None:
        ending = _ids_in(client, prefix, _ENDING)
        if ending:
            raise KafkaFailed(f"end of transaction {ending[0]}", ErrorCode.CONCURRENT_TRANSACTIONS)

    client.retried(attempt)


def _ids_in(client: KafkaClient, prefix: str, states: list[str]) -> list[str]:
    request = ListTransactionsRequest(state_filters=states)
    found = []
    for broker in client.brokers():
        answer = client.ask(request, ListTransactionsResponse, broker)
        check(f"list of transactions {prefix}", answer.error_code)
        found += [each.transactional_id for each in answer.transaction_states]
    return sorted(each for each in found if each.startswith(prefix))


def committed_offset(client: KafkaClient, group: str) -> int:
    """Return the largest offset that a group has committed; 0 without one.

    An offset in a transaction that is being committed is waited for.
    """
    request = OffsetFetchRequest(group_id=group, topics=None, require_stable=True)

    def attempt() -> int:
        answer = client.ask(request, OffsetFetchResponse, _coordinator(client, group, _GROUP))
        check(f"offsets of group {group}", answer.error_code)
        found = [each for topic in answer.topics for each in topic.partitions]
        for each in found:
            check(f"offset of group {group}", each.error_code)
        return max((each.committed_offset for each in found), default=0)

    return client.retried(attempt)


def _coordinator(client: KafkaClient, key: str, kind: int) -> tuple[str, int]:
    request = FindCoordinatorRequest(key=key, key_type=kind)
    found = client.ask(request, FindCoordinatorResponse)
    check(f"coordinator of {key}", found.error_code)
    return found.host, found.port
