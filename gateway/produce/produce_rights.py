"""Produce rights: what the client of a Produce request may write to.

Rule: without an authorizer nothing is checked. A topic that the client may not write to is refused
whether it exists or not; an unknown topic id has no name to check.
Must not know: requests, what is done with a refusal.
"""

from typing import TYPE_CHECKING

from kledger.gateway.metadata.partition_lookup import TopicLookup
from kledger.gateway.peer import Peer
from kledger.gateway.request_context import is_authorized
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.produce_codec import TOPIC_ID_SINCE
from kledger.security.acl_state import Operation, ResourceType
from kledger.topics.topic_names import resolve_name

if TYPE_CHECKING:
    from kledger.gateway.services import Services


class ProduceRights:
    """Asks for the rights of one server's Produce requests."""

    def __init__(self, services: "Services", lookup: TopicLookup) -> None:
        self._services = services
        self._lookup = lookup

    def topic_refusal(self, peer: Peer, key: bytes, version: int) -> ErrorCode:
        """Return why a client may not write to a topic, by its name or id; NONE if it may."""
        if self._services.authorizer is None:
            return ErrorCode.NONE
        has_ids = version >= TOPIC_ID_SINCE
        topic = self._lookup.by_id(key) if has_ids else self._lookup.by_name(key)
        if topic is None and has_ids:
            return ErrorCode.NONE
        name = topic.name if topic else resolve_name(key.decode("utf-8", "replace"))
        if is_authorized(self._services, peer, Operation.WRITE, ResourceType.TOPIC, name):
            return ErrorCode.NONE
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def may_write_transactions(self, peer: Peer, transactional_id: str | None) -> bool:
        """Return whether a client may send transactional batches with a transactional id."""
        return transactional_id is not None and is_authorized(
            self._services,
            peer,
            Operation.WRITE,
            ResourceType.TRANSACTIONAL_ID,
            transactional_id,
        )
