"""ProduceSlot: the response of one Produce request, put together as its batches become durable.

Rule: every partition is answered for itself; the response is written when the last one is known.
Must not know: how requests are parsed, topics, when the response leaves.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kledger.gateway.error_map import error_code_of, record_errors_of
from kledger.gateway.net.connection_state import ResponseSlot
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.produce_codec import (
    ParsedProduceRequest,
    PartitionResult,
    produce_response_frame,
)

if TYPE_CHECKING:
    from kledger.gateway.net.ports import ResponsePort
    from kledger.topics import AppendResult, TopicsError

PENDING: PartitionResult = (b"", 0, ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1, -1, None, ())


class ProduceSlot(ResponseSlot):
    """Complete when every partition is. Under acks 0 it has no place and says nothing.

    Attributes:
        port: of the connection.
        request: what is answered.
        batches_in_walk: the batches whose records are being looked at; they are not appended yet.
    """

    __slots__ = (
        "_correlation_id",
        "_pending",
        "_results",
        "_throttle_time_ms",
        "_version",
        "batches_in_walk",
        "port",
        "request",
    )

    def __init__(
        self, port: "ResponsePort", version: int, correlation_id: int, request: ParsedProduceRequest
    ) -> None:
        # Not calling the base's constructor saves a tenth of a microsecond a request.
        self.response = None
        self.batches_in_walk: Sequence[int] = ()
        self.port = port
        self._version = version
        self._correlation_id = correlation_id
        self.request = request
        self._pending = len(request.partitions)
        self._results: list[PartitionResult] = [PENDING] * self._pending
        self._throttle_time_ms = port.throttle_time_ms

    def single_batch_appended(self, result: "AppendResult") -> None:
        """The only batch of the request is durable, or was rejected. The hot path."""
        error, base_offset, append_time_ms, log_start_offset, _ = result
        if error is not None or self.request.acks == 0:
            self.batch_appended(0, result)
            return
        try:
            key, index, _, _ = self.request.partitions[0]
            row = (key, index, 0, base_offset, append_time_ms, log_start_offset, None, ())
            frame = produce_response_frame(
                self._correlation_id, self._version, (row,), self._throttle_time_ms
            )
            self.response = (frame,)
            self.port.slot_ready(self)
        except Exception as fault:  # noqa: BLE001 - the partition that calls must not suffer
            self.port.contain(fault)

    def batch_appended(self, position: int, result: "AppendResult") -> None:
        """One batch is durable, or was rejected."""
        try:
            self._batch_appended(position, result)
        except Exception as fault:  # noqa: BLE001 - the partition that calls must not suffer
            self.port.contain(fault)

    def _batch_appended(self, position: int, result: "AppendResult") -> None:
        error, base_offset, append_time_ms, log_start_offset, _ = result
        if error is not None:
            self._append_failed(position, error, log_start_offset)
            return
        key, index, _, _ = self.request.partitions[position]
        self._results[position] = (
            key, index, 0, base_offset, append_time_ms, log_start_offset, None, (),
        )  # fmt: skip
        self._pending -= 1
        if not self._pending:
            self.complete()

    def _append_failed(self, position: int, error: "TopicsError", log_start_offset: int) -> None:
        code = error_code_of(error)
        self.batch_rejected(position, code, log_start_offset, str(error), record_errors_of(error))

    def batch_rejected(
        self,
        position: int,
        code: int,
        log_start_offset: int = -1,
        message: str | None = None,
        record_errors: tuple[tuple[int, str], ...] = (),
    ) -> None:
        """One batch was not appended."""
        if self.request.acks == 0:
            self.port.fail(f"produce with acks 0: error {code} {message or ''}")
        key, index, _, _ = self.request.partitions[position]
        self._results[position] = (
            key, index, code, -1, -1, log_start_offset, message, record_errors,
        )  # fmt: skip
        self._pending -= 1
        if not self._pending:
            self.complete()

    def answer_now(self) -> None:
        """Refuse what is not appended yet: the request will not be started again."""
        numbers, self.batches_in_walk = self.batches_in_walk, ()
        for number in numbers:
            self.batch_rejected(number, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def complete(self) -> None:
        """Write the response; its turn comes when those before it have left."""
        if self.request.acks == 0:
            return
        frame = produce_response_frame(
            self._correlation_id, self._version, self._results, self._throttle_time_ms
        )
        self.response = (frame,)
        self.port.slot_ready(self)
