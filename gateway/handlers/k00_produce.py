"""Produce, key 0, versions 3-13 (advertised from 0, see the list of handlers).

Behaviour:
- A batch is appended before the next frame is read; its response is sent when it is durable, and
  responses keep the order of requests. Every partition is answered for itself.
- acks 0 gets no response; an error under it closes the connection, which is all a client can see.
  acks other than -1, 0 and 1 is INVALID_REQUIRED_ACKS for every partition.
- The client must be allowed to write to each topic, and to the transactional id of transactional
  batches; what it may not write to is refused whether it exists or not.
- Unknown topics are not created here: UNKNOWN_TOPIC_OR_PARTITION. Names of Kafka's internal topics
  are INVALID_TOPIC_EXCEPTION. A broker of several first applies what others have changed: nobody
  sends the records again that came with acks 0 and right after the creation of their topic.
- Null records are INVALID_RECORD (Kafka 4.3 never answers them).
- `gateway.produce.transaction_verification` verifies transactional batches. A request that has one
  and no transactional id is rejected as a whole, with the code that Kafka has for it.
- A batch whose records take long to check holds its connection (`gateway.produce.request`).
- The records stay in the frame when the frame has memory of its own and they fill it well; any
  other batch is copied, because the cache keeps it longer than the frame.

Version notes:
- zstd needs v7 (KIP-110). v8 messages and record errors (KIP-467), v10 leader hints (KIP-951), v12
  implicit AddPartitionsToTxn (KIP-890), v13 topic ids (KIP-516), UNKNOWN_TOPIC_ID if unknown.
"""

from collections.abc import Container, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from kledger.batches.header import CODEC_MASK, FLAGS_AT
from kledger.gateway.metadata.partition_lookup import (
    PartitionOpener,
    TopicLookup,
    UnopenedPartition,
)
from kledger.gateway.produce.produce_rights import ProduceRights
from kledger.gateway.produce.request import ProduceAppends, ProduceRouteCache, slot_maker
from kledger.gateway.produce.transaction_verification import (
    TransactionVerification,
    has_transactional_batch,
)
from kledger.gateway.produce.unknown_topics import UnknownTopics, missing_topic_error
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.produce_codec import (
    TOPIC_ID_SINCE,
    ParsedProduceRequest,
    PartitionKey,
    Records,
    find_single_batch,
    parse_produce_request,
)
from kledger.topics import PartitionLog

if TYPE_CHECKING:
    from kledger.gateway.net.ports import ResponsePort
    from kledger.gateway.services import Services

KEY = 0
MIN_VERSION = 3
MAX_VERSION = 13

ZSTD = 4
ZSTD_SINCE = 7
LogOrError: TypeAlias = PartitionLog | int
"""The log of a batch, or the error code of its partition."""


def make_handler(services: "Services") -> "ProduceHandler":
    """Return the handler of one server."""
    return ProduceHandler(services)


class ProduceHandler:
    """Serves Produce on frames; see `gateway.net.ports.FrameHandler`."""

    def __init__(self, services: "Services") -> None:
        self._lookup = TopicLookup(services.registry)
        self._routes = ProduceRouteCache(services.registry, services.authorizer)
        self._transactions = TransactionVerification(services)
        self._rights = ProduceRights(services, self._lookup)
        self._opener = PartitionOpener()
        self._unknown = UnknownTopics(services.catch_up)
        self._make_slot = slot_maker(services)
        self._append = ProduceAppends(services.store.compute_pool).append

    def start(
        self,
        port: "ResponsePort",
        frame: memoryview,
        version: int,
        body_start: int,
        correlation_id: int,
        *,
        is_owned: bool,
    ) -> Coroutine[Any, Any, None] | None:
        """Append every batch of the request, or return what must be awaited first."""
        single = find_single_batch(frame, version, body_start)
        route = self._routes.find(version, single, port.peer)
        records: Records
        found: Sequence[LogOrError]
        verified: Container[int] = ()
        if route is not None and single is not None:
            request, found = route
            records = single[1:]
        else:
            request, records = parse_produce_request(frame, version, body_start)
            admitted = self._admit(request, records, version, port)
            if not isinstance(admitted, tuple):
                return admitted
            found, verified = admitted
            if version >= ZSTD_SINCE:
                self._routes.remember(version, single, request, found, port.peer)
        slot = self._make_slot(port, version, correlation_id, request)
        return self._append(slot, frame, records, found, verified, is_owned=is_owned)

    def _admit(
        self, request: ParsedProduceRequest, records: Records, version: int, port: "ResponsePort"
    ) -> tuple[list[LogOrError], Container[int]] | Coroutine[Any, Any, None]:
        """Return the logs and the verified positions of the batches, or what to await first."""
        if has_transactional_batch(records) and not self._rights.may_write_transactions(
            port.peer, request.transactional_id
        ):
            refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return [refused] * len(request.partitions), ()
        found = self._find_logs(request, records, version, port)
        if not isinstance(found, list):
            return found
        if request.transactional_id is not None:
            verified = self._verify(request, records, found, version)
            return (found, verified) if isinstance(verified, set) else verified
        return found, ()

    def _find_logs(
        self, request: ParsedProduceRequest, records: Records, version: int, port: "ResponsePort"
    ) -> list[LogOrError] | Coroutine[Any, Any, None]:
        """Return the logs of the batches, or what must be awaited first; see `start`."""
        missing: list[UnopenedPartition] = []
        found = [
            self._rights.topic_refusal(port.peer, key[0], version)
            or self._find(key, records[position], request.acks, version, missing)
            for position, key in enumerate(request.partitions)
        ]
        if (waiting := self._unknown.before(found, port)) is not None:
            return waiting
        if missing:
            return self._opener.open(missing)
        self._opener.forget_failures()
        self._unknown.passed(port)
        return found

    def _find(
        self,
        partition: PartitionKey,
        records: memoryview | None,
        acks: int,
        version: int,
        missing: list[UnopenedPartition],
    ) -> LogOrError:
        """Return the log of a partition or its error code, or add it to `missing`."""
        key, index = partition
        has_ids = version >= TOPIC_ID_SINCE
        topic = self._lookup.by_id(key) if has_ids else self._lookup.by_name(key)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID if has_ids else missing_topic_error(key)
        if not -1 <= acks <= 1:
            return ErrorCode.INVALID_REQUIRED_ACKS
        if records is None:
            return ErrorCode.INVALID_RECORD
        if version < ZSTD_SINCE and len(records) > FLAGS_AT:
            codec = records[FLAGS_AT] & CODEC_MASK
            if codec == ZSTD:
                return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return topic.partition_for_append(index) or self._opener.require(topic, index, missing)

    def _verify(
        self,
        request: ParsedProduceRequest,
        records: Records,
        found: list[LogOrError],
        version: int,
    ) -> set[int] | Coroutine[Any, Any, None]:
        """Return the positions of verified batches, or what must be awaited first; see `start`.

        The error of a batch whose transaction does not include its partition is set in `found`.
        """
        assert request.transactional_id is not None
        batches = []
        for position, log in enumerate(found):
            batch = records[position]
            if not isinstance(log, int) and batch is not None:
                batches.append((position, log, batch))
        admitted = self._transactions.admit(request.transactional_id, batches, version)
        if not isinstance(admitted, dict):
            return admitted
        for position, error in admitted.items():
            if error:
                found[position] = error
        return {position for position, error in admitted.items() if not error}
