"""Serializers: from values to stored bytes and back, for publishers and subscribers.

Rule: what one writes the other reads. They are given for `serializer=` and `deserializer=` of named
topics; any other pair of functions will do.
Must not know: publishers, subscribers.
"""

import json
from typing import Any


def to_json(value: Any) -> bytes:
    """Return a value as JSON in UTF-8. Raises TypeError for what JSON does not have."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def from_json(data: bytes) -> Any:
    """Return the value of JSON. Raises ValueError for anything else."""
    return json.loads(data)


def to_msgpack(value: Any) -> bytes:
    """Return a value as MessagePack.

    Raises:
        TypeError, ValueError, OverflowError: MessagePack does not have it.
        ModuleNotFoundError: `msgpack` is not installed; `pip install kledger[msgpack]` does that.
    """
    import msgpack

    packed: bytes = msgpack.packb(value)
    return packed


def from_msgpack(data: bytes) -> Any:
    """Return the value of MessagePack.

    Raises:
        ValueError: it is anything else, or too short.
        ModuleNotFoundError: as for `to_msgpack`.
    """
    import msgpack

    return msgpack.unpackb(data, strict_map_key=False)
