"""A transactional producer of the protocol, for scripts: one method for each request.

Rule: it keeps producer id, epoch and sequences as a client library does; a script may set them.
Must not know: which server it is connected to.
"""

from __future__ import annotations

from typing import Any, Final

from compat_tests.differential import words
from compat_tests.differential.side import Side
from kledger.batches.builder import BatchProducer
from kledger.gateway.wire.messages import k24_add_partitions_to_txn as k24
from kledger.gateway.wire.messages import k28_txn_offset_commit as k28
from kledger.gateway.wire.messages.k22_init_producer_id import InitProducerIdRequest
from kledger.gateway.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from kledger.gateway.wire.messages.k26_end_txn import EndTxnRequest
from kledger.gateway.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from kledger.gateway.wire.messages.k65_describe_transactions import DescribeTransactionsRequest
from kledger.gateway.wire.primitives import ZERO_UUID

RISING_SINCE: Final = 5
"""EndTxn: from here on every end raises the epoch."""
OLD_PRODUCE, NEW_PRODUCE = 11, 12
"""The second adds the partition to the transaction by itself."""
LONG_MS: Final = 60_000


class Producer:
    """A transactional producer with its own view of its epoch, which a script may set."""

    def __init__(self, side: Side, name: str, topic: str) -> None:
        """Write to one topic."""
        self.side = side
        self.name = name
        self.topic = topic
        self.producer_id = self.epoch = -1
        self.sequences: dict[int, int] = {}

    def init(
        self, label: str, version: int = 5, *, timeout_ms: int = LONG_MS, comes_back: bool = False
    ) -> Any:
        """Ask for the producer; with `comes_back` as the one that it was (KIP-360)."""
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=timeout_ms
        )
        if comes_back:
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch
        answer = self.side.settle(label, request, version)
        self._become(answer)
        return answer

    def add(self, label: str, *partitions: int, topic: str = "", version: int = 3) -> Any:
        """Add partitions."""
        topics = [k24.AddPartitionsToTxnTopic(name=topic or self.topic, partitions=[*partitions])]
        one = k24.AddPartitionsToTxnTransaction(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=topics,
        )
        request = k24.AddPartitionsToTxnRequest(
            transactions=[one],
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        return self.side.settle(label, request, version)

    def produce(
        self,
        label: str,
        version: int = OLD_PRODUCE,
        *,
        partition: int = 0,
        sequence: int | None = None,
        is_transactional: bool = True,
        names_itself: bool = True,
    ) -> Any:
        """Send a record; the sequence increases if it is accepted."""
        expected = self.sequences.get(partition, 0)
        number = expected if sequence is None else sequence
        who = BatchProducer(self.producer_id, self.epoch, number, is_transactional=is_transactional)
        by_id = self.side.topic_id(self.topic) if version >= words.RECORDS_BY_ID else ZERO_UUID
        request = words.produce(
            self.topic,
            {partition: words.batch(label.encode(), producer=who)},
            topic_id=by_id,
            transactional_id=self.name if names_itself else None,
        )
        answer = self.side.ask(label, request, version)
        if not answer.responses[0].partition_responses[0].error_code:
            self.sequences[partition] = max(expected, number + 1)
        return answer

    def add_group(self, label: str, group: str, version: int = 4) -> Any:
        """Add a group."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return self.side.settle(label, request, version)

    def commit_offset(
        self, label: str, group: str, offset: int, version: int = 4, **sender: Any
    ) -> Any:
        """Send an offset of partition 0."""
        asked = k28.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata="m"
        )
        topic = k28.TxnOffsetCommitRequestTopic(name=self.topic, partitions=[asked])
        settings: dict[str, Any] = {
            "transactional_id": self.name,
            "group_id": group,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "topics": [topic],
        }
        return self.side.settle(label, k28.TxnOffsetCommitRequest(**settings | sender), version)

    def end(self, label: str, version: int = 4, *, commit: bool = True, **changes: Any) -> Any:
        """Commit or abort."""
        settings: dict[str, Any] = {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "committed": commit,
        }
        answer = self.side.settle(label, EndTxnRequest(**settings | changes), version)
        if version >= RISING_SINCE:
            self._become(answer)
        return answer

    def _become(self, answer: Any) -> None:
        identity = answer.producer_id, answer.producer_epoch
        if not answer.error_code and identity != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = identity
            self.sequences.clear()

    # Looking on.

    def look(self, label: str, *, has_ended: bool = False) -> None:
        """Read with both isolation levels; markers are written a moment after the answer."""
        for isolation in (1, 0):
            request = words.fetch(self.topic, {0: 0}, isolation_level=isolation)
            isolation_label = f"{label}, isolation {isolation}"
            if has_ended:
                self.side.ask_until(isolation_label, request, 12, _is_stable)
            else:
                self.side.ask(isolation_label, request, 12)
        for isolation in (0, 1):
            end = words.list_offsets(self.topic, {0: -1}, isolation_level=isolation)
            self.side.ask(f"{label}, end {isolation}", end, 7)

    def state(self, label: str) -> None:
        """Look at the coordinator's record of it, and at the partition's."""
        self.side.ask(label, DescribeTransactionsRequest(transactional_ids=[self.name]), 0)
        named = TopicRequest(name=self.topic, partition_indexes=[0])
        self.side.ask(label, DescribeProducersRequest(topics=[named]), 0)

    def settled(self, label: str) -> None:
        """Wait until the coordinator has written all markers, then look at its record."""
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        self.side.ask_until(label, request, 0, _is_complete)

    def committed(self, label: str, group: str, *, require_stable: bool = False) -> None:
        """Ask for the offset that the group has."""
        request = words.committed(group, self.topic, require_stable=require_stable)
        self.side.ask(label, request, 7)


def _is_stable(answer: Any) -> bool:
    found = answer.responses[0].partitions[0]
    return bool(found.last_stable_offset == found.high_watermark)


def _is_complete(answer: Any) -> bool:
    return not answer.transaction_states[0].transaction_state.startswith(("Ongoing", "Prepare"))


def begun(side: Side, name: str, end_version: int = 4, partitions: int = 2) -> Producer:
    """A producer with one record in an open transaction, of the old or the new kind."""
    producer = Producer(side, name, side.has(f"topic-{name}", partitions))
    producer.init("init")
    if end_version < RISING_SINCE:
        producer.add("add", 0)
    produce(producer, "first", end_version)
    return producer


def produce(producer: Producer, label: str, end_version: int) -> None:
    """Send a record the way that fits an end of that version."""
    producer.produce(label, NEW_PRODUCE if end_version >= RISING_SINCE else OLD_PRODUCE)
