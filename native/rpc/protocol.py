"""What both ends of the remote transport must agree on: names, versions, settings of a connection.

Rule: the service of the .proto file is the list of calls; nothing is listed a second time. Both
ends ping a silent peer, so that one that is gone, or stands still, is noticed.
Must not know: what a call does.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import grpc.aio

from kledger.native.errors import NotAllowed
from kledger.native.proto import kledger_native_pb2 as pb

VERSION_MIN = 1
VERSION_MAX = 1
VERSION_KEY = "kledger-protocol"

MESSAGE_BYTES_GOAL = 256 * 1024
"""What waits to be written goes in messages of about this size; one item may be larger."""

Option = tuple[str, int | str]
Context: TypeAlias = grpc.aio.ServicerContext
"""A call, as its server sees it."""


class Call(NamedTuple):
    """One call of the service."""

    path: str
    request: Any
    response: Any
    is_stream: bool


def _calls() -> Iterator[tuple[str, Call]]:
    service = pb.DESCRIPTOR.services_by_name["Broker"]
    for method in service.methods:
        yield (
            method.name,
            Call(
                path=f"/{service.full_name}/{method.name}",
                request=getattr(pb, method.input_type.name),
                response=getattr(pb, method.output_type.name),
                is_stream=method.client_streaming,
            ),
        )


CALLS: Mapping[str, Call] = dict(_calls())
SERVICE = pb.DESCRIPTOR.services_by_name["Broker"].full_name


def agree(*, client: tuple[int, int], server: tuple[int, int]) -> int:
    """Return the highest version that both speak; each is given as lowest and highest.

    Raises:
        NotAllowed: there is none.
    """
    version = min(client[1], server[1])
    if version < max(client[0], server[0]):
        raise NotAllowed(
            f"no common protocol version: the client speaks {client[0]} to {client[1]}, "
            f"the server {server[0]} to {server[1]}"
        )
    return version


def connection_options(keepalive_ms: int) -> Sequence[Option]:
    """Return the settings of a connection that are the same for both ends."""
    return (
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms),
        # The time above is for data that nobody acknowledges; this one is for pings, else a minute.
        ("grpc.http2.ping_timeout_ms", keepalive_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # What is stored may be delivered, whatever the limit was when it came.
        ("grpc.max_send_message_length", -1),
    )
