"""Transaction wire: the requests of a transactional producer, made by hand.

Rule: one partition, number 0. Protocol 1 names the partition before it is written to; in protocol 2
(KIP-890) the first batch does that, and every end brings a new epoch.

| API                | protocol 1 | protocol 2 |
|--------------------|------------|------------|
| FindCoordinator    | 2          | 2          |
| InitProducerId     | 1          | 1          |
| AddPartitionsToTxn | 2          | -          |
| Produce            | 7          | 12         |
| EndTxn             | 2          | 5          |
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from benchmarks.wire import compact, framed, sized, string

_PRODUCE, _FIND_COORDINATOR, _INIT_PRODUCER_ID, _ADD_PARTITIONS, _END = 0, 10, 22, 24, 26
_TRANSACTION = 1
_TIMEOUT_MS = 60_000
_NO_TAGS = b"\0"
_ONE = b"\x02"
"""The size of a compact array with one element."""


class Producer(NamedTuple):
    """A transactional producer, as the coordinator knows it."""

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1


def find_coordinator_request(producer: Producer) -> bytes:
    """Find the coordinator; the error code is the second field of the answer."""
    body = string(producer.transactional_id) + bytes((_TRANSACTION,))
    return framed(_FIND_COORDINATOR, 2, body)


def init_producer_id_request(producer: Producer) -> bytes:
    """Ask for an id."""
    body = string(producer.transactional_id) + struct.pack(">i", _TIMEOUT_MS)
    return framed(_INIT_PRODUCER_ID, 1, body)


def add_partition_request(producer: Producer, topic: str) -> bytes:
    """Name the partition that is written to next."""
    body = _head(producer) + struct.pack(">i", 1) + string(topic) + struct.pack(">ii", 1, 0)
    return framed(_ADD_PARTITIONS, 2, body)


def produce_request(producer: Producer, topic: str, batch: bytes, *, protocol: int) -> bytes:
    """Send a batch."""
    acks = struct.pack(">hi", -1, _TIMEOUT_MS)
    name, partition = producer.transactional_id, struct.pack(">i", 0)
    if protocol == 1:
        one = struct.pack(">i", 1)
        body = string(name) + acks + one + string(topic) + one + partition + sized(batch)
        return framed(_PRODUCE, 7, body)
    body = compact(name.encode()) + acks + _ONE + compact(topic.encode()) + _ONE + partition
    body += compact(batch) + _NO_TAGS * 3
    return framed(_PRODUCE, 12, body, is_flexible=True)


def end_request(producer: Producer, *, protocol: int) -> bytes:
    """Commit."""
    if protocol == 1:
        return framed(_END, 2, _head(producer) + b"\x01")
    identity = struct.pack(">qh", producer.producer_id, producer.epoch)
    body = compact(producer.transactional_id.encode()) + identity + b"\x01" + _NO_TAGS
    return framed(_END, 5, body, is_flexible=True)


def _head(producer: Producer) -> bytes:
    identity = struct.pack(">qh", producer.producer_id, producer.epoch)
    return string(producer.transactional_id) + identity


def coordinator_error(response: bytes) -> int:
    """Read the error code of FindCoordinator, InitProducerId, or EndTxn of protocol 1."""
    return int(struct.unpack_from(">h", response, 4)[0])


def added_error(response: bytes, topic: str) -> int:
    """Read the error code of the one partition of AddPartitionsToTxn."""
    return int(struct.unpack_from(">h", response, 8 + 2 + len(topic) + 4 + 4)[0])


def produced_error(response: bytes, topic: str, *, protocol: int) -> int:
    """Read the error code of the one partition of Produce."""
    at = 4 + 2 + len(topic) + 4 + 4 if protocol == 1 else 1 + 1 + 1 + len(topic) + 1 + 4
    return int(struct.unpack_from(">h", response, at)[0])


def identified(producer: Producer, response: bytes) -> Producer:
    """Read the producer from the answer to InitProducerId."""
    producer_id, epoch = struct.unpack_from(">qh", response, 6)
    return producer._replace(producer_id=producer_id, epoch=epoch)


def ended(producer: Producer, response: bytes, *, protocol: int) -> tuple[int, Producer]:
    """Read the error code of EndTxn, and the producer's next id and epoch."""
    if protocol == 1:
        return coordinator_error(response), producer
    _, error, producer_id, epoch = struct.unpack_from(">ihqh", response, 1)
    return error, producer._replace(producer_id=producer_id, epoch=epoch) if not error else producer
