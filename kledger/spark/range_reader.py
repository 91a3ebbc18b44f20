"""Reading one range of offsets from a broker, as Arrow record batches; this runs on executors.

Rule: every record of the range that the isolation level shows comes once, in order; a range that
cannot be read whole is an error. While one response is decoded the broker works on the next.
Must not know: which ranges there are.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from kledger.batches.header import BatchHeader, verify_checksum
from kledger.batches.reader import iterate_batches, read_is_commit
from kledger.broker_client.broker_connections import KafkaFailed
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k01_fetch import PartitionData
from kledger.spark.arrow_rows import arrow_rows
from kledger.spark.kafka_client import KafkaClient
from kledger.spark.offset_range import EARLIEST, KafkaPartition, OffsetRange
from kledger.spark.range_lookup import DataLost
from kledger.spark.record_columns import decode_batches
from kledger.spark.source_options import SourceOptions

EMPTY_MAX: Final = 5
"""Fetches in a row that find nothing before the rest of a range counts as compacted away."""

Batch = tuple[BatchHeader, memoryview]


class RangeReader:
    """One range, read by a client of its own."""

    def __init__(self, options: SourceOptions, split: OffsetRange) -> None:
        self._options, self._split = options, split
        self._where: KafkaPartition = split.where

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the records of the range.

        Raises:
            DataLost: a part of it is not there any more, and that is to be an error.
            KafkaFailed, ConnectionLost: the broker refused, or did not come back.
            CorruptBatch: a batch is damaged.
        """
        with KafkaClient(self._options.servers, self._options.security) as client:
            position, empty = self._split.start, 0
            self._ask(client, position)
            while position < self._split.end:
                found = self._receive(client, position)
                if found is None:
                    position = self._first_left(client, position)
                    self._ask(client, position)
                    continue
                batches = list(iterate_batches(found.records or b""))
                if batches:
                    position, empty = max(position, batches[-1][0].last_offset + 1), 0
                elif (empty := empty + 1) == EMPTY_MAX:
                    self._check_end(found, position)
                    return
                if position < self._split.end:
                    self._ask(client, position)
                visible = list(self._visible(batches, found))
                for columns in decode_batches(
                    visible,
                    start=self._split.start,
                    end=self._split.end,
                    with_headers=self._options.with_headers,
                ):
                    yield arrow_rows(self._where, columns)

    def _ask(self, client: KafkaClient, position: int) -> None:
        client.retried(lambda: self._send(client, position))

    def _send(self, client: KafkaClient, position: int) -> None:
        client.send_fetch(self._where, position, is_committed=self._options.is_committed)

    def _receive(self, client: KafkaClient, position: int) -> PartitionData | None:
        """Receive what was asked for, or ask again; None if the offset is not in the log."""
        is_asked = True

        def attempt() -> PartitionData:
            nonlocal is_asked
            while True:
                if not is_asked:
                    self._send(client, position)
                is_asked = False
                if (found := client.receive_fetch(self._where)) is not None:
                    return found

        try:
            return client.retried(attempt)
        except KafkaFailed as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return None

    def _first_left(self, client: KafkaClient, position: int) -> int:
        """Return the start of a log that was cut while it was read."""
        earliest = client.offsets({self._where: EARLIEST}, is_committed=False)[self._where]
        if self._options.fails_on_data_loss or earliest <= position:
            raise DataLost(
                f"Some data may have been lost: {self._where} has no offset {position}, it begins"
                f" at {earliest}; failOnDataLoss=false reads what is there"
            )
        return earliest

    def _check_end(self, found: PartitionData, position: int) -> None:
        """Accept that a compacted log has nothing more in the range; or fail."""
        end = found.last_stable_offset if self._options.is_committed else found.high_watermark
        if end < self._split.end and self._options.fails_on_data_loss:
            raise DataLost(
                f"Some data may have been lost: {self._where} ends at offset {end}, expected"
                f" {self._split.end}; read up to {position}"
            )

    def _visible(self, batches: list[Batch], found: PartitionData) -> Iterator[Batch]:
        """Check each batch; leave out markers and, for read_committed, what was aborted.

        Source: Kafka's Fetcher: a producer is aborted from the first offset that the response
        names on, until its marker.
        """
        aborted = sorted(
            (each.first_offset, each.producer_id) for each in found.aborted_transactions or ()
        )
        open_aborted: set[int] = set()
        at = 0
        for header, batch in batches:
            while at < len(aborted) and aborted[at][0] <= header.last_offset:
                open_aborted.add(aborted[at][1])
                at += 1
            verify_checksum(batch, header)
            if header.is_control:
                if not read_is_commit(batch):
                    open_aborted.discard(header.producer_id)
            elif not (
                self._options.is_committed
                and header.is_transactional
                and header.producer_id in open_aborted
            ):
                yield header, batch
