"""Throttle time: sets the client's waiting time in a response that is already encoded.

Rule: most responses begin with that field, and only in these it is set; the others stay the same,
as the server stops reading the connection in any case.
Must not know: quotas, connections.
"""

from collections.abc import Sequence
from functools import cache
from struct import Struct

from kledger.gateway.wire.primitives import Buffer
from kledger.gateway.wire.schema import ApiMessage, fields_of

FIELD = "throttle_time_ms"
_TIME = Struct(">i")
_PREFIX_SIZE = 8
"""The size of the frame and the correlation id."""


def set_throttle_time(
    response: Sequence[Buffer], cls: type[ApiMessage], version: int, time_ms: int
) -> Sequence[Buffer]:
    """Return the frame with that time; the frame's own memory stays the same."""
    if not _is_first(cls, version):
        return response
    is_flexible = version in cls.__api__.flexible
    first = bytearray(response[0])
    _TIME.pack_into(first, _PREFIX_SIZE + is_flexible, time_ms)
    return (first, *response[1:])


@cache
def _is_first(cls: type[ApiMessage], version: int) -> bool:
    plain = (each for each in fields_of(cls) if version in each.versions and each.tag is None)
    first = next(plain, None)
    return first is not None and first.name == FIELD
