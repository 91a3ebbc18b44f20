"""Metadata responses, joined from parts that were encoded before.

A Metadata response for a hundred topics costs more than a millisecond to encode, and the next one
differs in nothing. So the part of each topic is encoded alone, cached, and joined between a head
and a tail:

    head: throttle, brokers, cluster id, controller | number of topics | topics | tail

Rule: the joined bytes are those of the whole message; a test compares them for every version.
Must not know: topics, requests.
"""

from collections.abc import Sequence
from struct import Struct as Layout

from kledger.gateway.wire.codec import encode
from kledger.gateway.wire.messages.k03_metadata import MetadataResponseBroker, MetadataResponseTopic
from kledger.gateway.wire.primitives import encode_uvarint
from kledger.gateway.wire.schema import ApiMessage, Int16, Int32, field

FLEXIBLE_SINCE = 9
_COUNT = Layout(">i")


class MetadataHead(ApiMessage, key=3, versions="0-13", flexible="9+"):
    """The fields before the topics."""

    throttle_time_ms: Int32 = field(versions="3+", default=0)
    brokers: list[MetadataResponseBroker] = field(default=[])
    cluster_id: str | None = field(versions="2+", default=None)
    controller_id: Int32 = field(versions="1+", default=-1)


class MetadataTopicBlock(ApiMessage, key=3, versions="0-13", flexible="9+"):
    """One topic."""

    topic: MetadataResponseTopic = field(default_factory=MetadataResponseTopic)


class MetadataTail(ApiMessage, key=3, versions="0-13", flexible="9+"):
    """The fields behind the topics."""

    cluster_authorized_operations: Int32 = field(versions="8-10", default=-2147483648)
    error_code: Int16 = field(versions="13+", default=0)


def encode_topic(topic: MetadataResponseTopic, version: int) -> bytes:
    """Return the part of one topic."""
    return _without_tags(encode(MetadataTopicBlock(topic=topic), version), version)


def encode_head(head: MetadataHead, version: int) -> bytes:
    """Return the part before the topics."""
    return _without_tags(encode(head, version), version)


def join_parts(head: bytes, topics: Sequence[bytes], tail: MetadataTail, version: int) -> bytes:
    """Return the body of a response."""
    if version >= FLEXIBLE_SINCE:
        count = encode_uvarint(len(topics) + 1)
    else:
        count = _COUNT.pack(len(topics))
    return b"".join((head, count, *topics, encode(tail, version)))


def _without_tags(body: bytes, version: int) -> bytes:
    """Cut off the empty tagged fields of the message that only serves to encode a part."""
    return body[:-1] if version >= FLEXIBLE_SINCE else body
