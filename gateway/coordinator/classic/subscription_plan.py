"""Subscription plan: which topics the members of a consumer group say they read.

Rule: the only reader of member metadata, and a distrustful one: what does not look like a consumer
subscription gives None, and the caller then assumes that everything is in use. Used where offsets
would be deleted, never where members are served.
Must not know: groups, offsets.

A subscription begins with version (i16), number of topics (i32) and the topics (i16 length, UTF-8).
What follows depends on the version and is not looked at; some clients claim a version without its
fields.
"""

import struct
from collections.abc import Iterable
from typing import Final

CONSUMER_PROTOCOL: Final = "consumer"

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all subscriptions together, or None if one cannot be read."""
    topics: set[str] = set()
    for subscription in subscriptions:
        found = parse_topics(subscription)
        if found is None:
            return None
        topics.update(found)
    return frozenset(topics)


def parse_topics(subscription: bytes) -> list[str] | None:
    """Return the topics of one subscription, or None if it is something else."""
    if len(subscription) < _HEAD.size:
        return None
    version, count = _HEAD.unpack_from(subscription)
    # Each topic takes at least its length field: a count that cannot fit is refused unlooped.
    if version < 0 or count < 0 or count * _LENGTH.size > len(subscription) - _HEAD.size:
        return None
    topics: list[str] = []
    position = _HEAD.size
    for _ in range(count):
        if position + _LENGTH.size > len(subscription):
            return None
        (length,) = _LENGTH.unpack_from(subscription, position)
        position += _LENGTH.size
        if length < 0 or position + length > len(subscription):
            return None
        try:
            topics.append(subscription[position : position + length].decode())
        except UnicodeDecodeError:
            return None
        position += length
    return topics
