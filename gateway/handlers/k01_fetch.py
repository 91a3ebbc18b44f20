"""Fetch, key 1, versions 4-18.

Behaviour:
- Nothing is read to decide whether to wait; `gateway.fetch.fetch_plan` decides when the response is
  sent and how many bytes each partition adds. No cursor of any kind exists.
- A waiting fetch is an object that listens to its logs, and one timer; only its own connection
  waits for it. If no log has changed until the timeout, the object is kept: an equal request of the
  consumer then waits again for the price of comparing the requests.
- Stored bytes are sent as they are. Records are never null: clients fail on it.
- Sessions (KIP-227): requests have what the client changes, responses what is new; an idle fetch of
  a session costs nothing per partition. `gateway.fetch.session` decides which requests continue.
- The client must be allowed to read each topic, when a request begins and as long as it waits; a
  follower (up to version 14), to act for the cluster. A partition that it may not read is
  TOPIC_AUTHORIZATION_FAILED, whether it exists or not.
- An offset beyond the end or before the start is OFFSET_OUT_OF_RANGE, with -1 for all offsets. An
  isolation level that does not exist is UNKNOWN_SERVER_ERROR for every partition, as in Kafka.
- Aborted transactions are null for read_uncommitted, a list for read_committed.

Version notes:
- v5 log start offset (KIP-107), v7 sessions, v9 leader epoch (KIP-320), v11 rack (KIP-392; there is
  no other replica to prefer), v12 last fetched epoch (only followers have one), v13 topic ids
  (KIP-516), v16 the leader of what is NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH (KIP-951), v15
  replica state and v17, v18 fields are for followers.
"""

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from kledger.gateway.fetch.fetch_plan import ISOLATION_LEVELS, NONE
from kledger.gateway.fetch.session import FetchManager, SessionFetchSlot, SessionPartition
from kledger.gateway.fetch.session_state import FINAL_EPOCH, INITIAL_EPOCH
from kledger.gateway.fetch.slot import (
    TOPIC_AUTHORIZATION_FAILED,
    FetchSlot,
    LogLookup,
    missing_partition_code,
)
from kledger.gateway.metadata.partition_lookup import (
    PartitionOpener,
    TopicLookup,
    UnopenedPartition,
)
from kledger.gateway.peer import Peer
from kledger.gateway.request_context import is_authorized
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.fetch_codec import (
    TOPIC_ID_SINCE,
    fetch_response_frame,
    parse_fetch_request,
)
from kledger.security.acl_state import CLUSTER_NAME, Operation, ResourceType
from kledger.topics.topic_names import resolve_name

if TYPE_CHECKING:
    from kledger.gateway.net.ports import ResponsePort
    from kledger.gateway.services import Services

KEY = 1
MIN_VERSION = 4
MAX_VERSION = 18

READ, TOPIC = Operation.READ, ResourceType.TOPIC
RefoundPartition = tuple[SessionPartition, LogLookup]


def make_handler(services: "Services") -> "FetchHandler":
    """Return the handler of one server."""
    return FetchHandler(services)


class FetchHandler:
    """Serves Fetch on frames; see `gateway.net.ports.FrameHandler`."""

    def __init__(self, services: "Services") -> None:
        self._services = services
        self._lookup = TopicLookup(services.registry)
        self._manager = FetchManager(services)
        self._opener = PartitionOpener()

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
        """Answer, or wait for records, or return the opening of logs that must be awaited first."""
        body = bytes(frame[body_start:])
        retained_slot = port.retained_slot
        if retained_slot is not None:
            if isinstance(retained_slot, FetchSlot) and retained_slot.matches(version, body):
                retained_slot.wait_again(correlation_id)
                return None
            port.retained_slot = None
            retained_slot.abandon()
        request = parse_fetch_request(memoryview(body), version)
        has_ids = version >= TOPIC_ID_SINCE
        allowed = self._already_allowed(port.peer)
        session, refound, missing = None, list[RefoundPartition](), list[UnopenedPartition]()
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            session, refused = self._manager.find_continued(
                request, port.peer.principal, has_topic_ids=has_ids
            )
            if session is None:
                port.respond(fetch_response_frame(correlation_id, version, (), error_code=refused))
                return None
            has_same_rules = session.rules_version == self._services.rules_version
            for one in session.partitions_without_log() if has_same_rules else session.partitions():
                found = self._find(port.peer, one.key, one.index, missing, allowed, has_ids=has_ids)
                refound.append((one, found))
        wanted = [
            (each, self._find(port.peer, each[0], each[1], missing, allowed, has_ids=has_ids))
            for each in request.partitions
        ]
        if request.replica_id >= 0 and not self._is_broker(port.peer):
            wanted = [(each, (None, TOPIC_AUTHORIZATION_FAILED)) for each, _ in wanted]
            missing.clear()
        if missing:
            return self._opener.open(missing)
        self._opener.forget_failures()
        if session is not None:
            self._manager.update(session, request, wanted, refound)
        else:
            session = self._manager.begin(
                request, wanted, port.peer.principal, has_topic_ids=has_ids
            )
        if session is not None and request.isolation_level in ISOLATION_LEVELS:
            fetch: FetchSlot = SessionFetchSlot(self._services, port, version, request, session)
        else:
            fetch = FetchSlot(self._services, port, version, body, request)
            fetch.require(wanted)
        if request.isolation_level not in ISOLATION_LEVELS:
            fetch.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
        fetch.begin(correlation_id)
        return None

    def _is_broker(self, peer: Peer) -> bool:
        return is_authorized(
            self._services, peer, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )

    def _already_allowed(self, peer: Peer) -> Mapping[str, bool] | None:
        """Return which topics the client was allowed to read before; None: everything is."""
        authorizer = self._services.authorizer
        if authorizer is None:
            return None
        return authorizer.decided(peer.principal, peer.host, READ, TOPIC)

    def _find(
        self,
        peer: Peer,
        key: bytes,
        index: int,
        missing: list[UnopenedPartition],
        allowed: Mapping[str, bool] | None,
        *,
        has_ids: bool,
    ) -> LogLookup:
        """Return the log of a partition or its error code, or add it to `missing`."""
        topic = self._lookup.by_id(key) if has_ids else self._lookup.by_name(key)
        if allowed is not None and (topic is not None or not has_ids):
            name = topic.name if topic else resolve_name(key.decode("utf-8", "replace"))
            if not (allowed.get(name) or is_authorized(self._services, peer, READ, TOPIC, name)):
                return None, TOPIC_AUTHORIZATION_FAILED
        if topic is None:
            return None, missing_partition_code(has_topic_ids=has_ids)
        log = topic.partition(index)
        if log is not None:
            return log, NONE
        return None, self._opener.require(topic, index, missing)
