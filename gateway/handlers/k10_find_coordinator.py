"""FindCoordinator, key 10, versions 0-6.

Behaviour:
- A single server coordinates every group and every transactional id. In a cluster the shard of the
  key decides which broker does. The address is that of the listener of the request.
- The first response of each key type to a connection of librdkafka, after the coordinator has moved
  to another address, makes it drop the coordinator and ask again. librdkafka, at least up to 2.16,
  keeps a coordinator's address as long as its id is the same (`rd_kafka_txn_coord_set`,
  `rd_kafka_cgrp_coord_update`), and would connect to the old address for ever. Other clients get
  the coordinator: aiokafka's administration client connects only to brokers that metadata name.
- Of a group, that response is COORDINATOR_NOT_AVAILABLE. An unknown id will not do: a transactional
  producer adds it to its brokers (`rd_kafka_coord_cache_add`), and waits for it for ever after
  metadata without this id have decommissioned it.
- Of a transactional id, it is another id with the right address (see MOVED_IDS). At an unknown id,
  and no other answer, librdkafka also requests metadata, which have the new address.
- Each requested key gets an entry. A client that may not describe the group or transactional id
  gets the error alone. A key type without a coordinator is INVALID_REQUEST.

Version notes:
- v1 adds the key type, v4 several keys in one request (KIP-699), v6 keys of share groups
  (KIP-932), which are not served.
"""

from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kledger.security.acl_state import Operation, ResourceType

KEY = 10
MIN_VERSION = 0
MAX_VERSION = 6

FIRST_VERSION_WITH_KEYS = 4
GROUP_KEY = 0
TRANSACTION_KEY = 1
RECENT_MOVE_MS = 600_000
"""How long clients may hold the address that a broker had before it moved: longer than any of them
waits on a connection to a machine that is gone."""
MOVED_IDS = 1 << 30
"""Added to the id of a broker that has moved; no node has such an id."""


def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Answer with the broker that coordinates each key."""
    if context.version >= FIRST_VERSION_WITH_KEYS:
        return FindCoordinatorResponse(
            coordinators=[
                _coordinator(context, request.key_type, key) for key in request.coordinator_keys
            ]
        )
    found = _coordinator(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(context: RequestContext, key_type: int, key: str) -> Coordinator:
    if key_type not in {GROUP_KEY, TRANSACTION_KEY}:
        return Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"keys of type {key_type} have no coordinator",
        )
    kind = ResourceType.GROUP if key_type == GROUP_KEY else ResourceType.TRANSACTIONAL_ID
    if refused := context.refusal(Operation.DESCRIBE, kind, key):
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=refused, error_message=refused.name
        )
    services = context.services
    shards = services.groups.shards if key_type == GROUP_KEY else services.transactions.shards
    wanted = services.brokers.coordinator_id(shards.number_of(key))
    for node_id, host, port in services.brokers.all(context.advertised):
        if node_id != wanted:
            continue
        if not _has_moved(context, key_type, wanted):
            return Coordinator(key=key, node_id=node_id, host=host, port=port, error_message=None)
        if key_type == GROUP_KEY:
            return _unavailable(key, f"broker {wanted}, which coordinates it, has moved; ask again")
        moved_id = MOVED_IDS + node_id
        return Coordinator(key=key, node_id=moved_id, host=host, port=port, error_message=None)
    return _unavailable(key, f"broker {wanted}, which coordinates it, has no listener of this name")


def _unavailable(key: str, message: str) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=-1,
        host="",
        port=-1,
        error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
        error_message=message,
    )


def _has_moved(context: RequestContext, key_type: int, broker_id: int) -> bool:
    """Return whether librdkafka has not had a response about a broker since it moved."""
    if not context.peer.is_librdkafka:
        return False
    move = context.services.brokers.moves_within(RECENT_MOVE_MS).get(broker_id)
    if move is None or context.peer.known_moves.get((key_type, broker_id)) == move:
        return False
    context.peer.known_moves[key_type, broker_id] = move
    return True
