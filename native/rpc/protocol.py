"""The remote protocol as both ends share it: calls, versions, connection settings, error codes.

Rule: the service of the .proto file is the only list of calls. Both ends ping a silent peer, so
that a dead one is detected. An error code is a stable word for one class of `native.errors`; an
error of a whole call is sent in the metadata `kledger-error`, with its text as the details of the
status. A status without a code comes from the transport.
Must not know: what a call does.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import grpc
import grpc.aio

from kledger.native.errors import (
    AlreadyClosed,
    CompactionRunning,
    ConsumerAssign,
    ConsumerBusy,
    FunctionFailed,
    IllegalArgument,
    IllegalState,
    InvalidArgument,
    KledgerError,
    NamespaceExists,
    NamespaceNotFound,
    NotAllowed,
    NotInSequence,
    NotLeaderForPartition,
    OffloadInProgress,
    SubscriberDisconnected,
    SubscriberGroupDestroyed,
    SubscriptionFenced,
    SubscriptionNotFound,
    Timeout,
    TopicExists,
    TopicFull,
    TopicNotFound,
    TopicTerminated,
    Unavailable,
)
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.runtime.error_table import ErrorTable

VERSION_MIN = 1
VERSION_MAX = 1
VERSION_KEY = "kledger-protocol"

MESSAGE_BYTES_GOAL = 256 * 1024
"""The size that a message of several items may reach; a single item may be larger."""

Option = tuple[str, int | str]
Context: TypeAlias = grpc.aio.ServicerContext
"""The server's side of a call."""


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


def serialized(message: Any) -> bytes:
    """Return the bytes of a message; one with batches is bytes already, see `values.BatchField`."""
    return message if type(message) is bytes else message.SerializeToString()


def agree(*, client: tuple[int, int], server: tuple[int, int]) -> int:
    """Return the highest version that both sides support; each is given as (lowest, highest).

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
    """Return the settings of a connection that both ends share."""
    return (
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms),
        # The timeout above is for unacknowledged data; this one, for pings, is a minute by default.
        ("grpc.http2.ping_timeout_ms", keepalive_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # A stored batch can always be delivered, although the limit may have been lowered.
        ("grpc.max_send_message_length", -1),
    )


# Errors

ERROR_KEY = "kledger-error"
TEXT_LENGTH_MAX = 2_000
"""Longer texts are cut: a status is sent in headers, whose size is limited."""

_Status = grpc.StatusCode

CODES: Mapping[str, tuple[type[KledgerError], grpc.StatusCode]] = {
    "internal": (KledgerError, _Status.INTERNAL),
    "topic_not_found": (TopicNotFound, _Status.NOT_FOUND),
    "topic_exists": (TopicExists, _Status.ALREADY_EXISTS),
    "topic_terminated": (TopicTerminated, _Status.FAILED_PRECONDITION),
    "namespace_not_found": (NamespaceNotFound, _Status.NOT_FOUND),
    "namespace_exists": (NamespaceExists, _Status.ALREADY_EXISTS),
    "consumer_busy": (ConsumerBusy, _Status.FAILED_PRECONDITION),
    "consumer_assign": (ConsumerAssign, _Status.FAILED_PRECONDITION),
    "subscription_not_found": (SubscriptionNotFound, _Status.NOT_FOUND),
    "subscription_fenced": (SubscriptionFenced, _Status.ABORTED),
    "already_closed": (AlreadyClosed, _Status.FAILED_PRECONDITION),
    "timeout": (Timeout, _Status.DEADLINE_EXCEEDED),
    "invalid_argument": (InvalidArgument, _Status.INVALID_ARGUMENT),
    "not_in_sequence": (NotInSequence, _Status.FAILED_PRECONDITION),
    "illegal_state": (IllegalState, _Status.FAILED_PRECONDITION),
    "illegal_argument": (IllegalArgument, _Status.INVALID_ARGUMENT),
    "subscriber_disconnected": (SubscriberDisconnected, _Status.FAILED_PRECONDITION),
    "subscriber_group_destroyed": (SubscriberGroupDestroyed, _Status.FAILED_PRECONDITION),
    "function_failed": (FunctionFailed, _Status.FAILED_PRECONDITION),
    "topic_full": (TopicFull, _Status.RESOURCE_EXHAUSTED),
    "compaction_running": (CompactionRunning, _Status.FAILED_PRECONDITION),
    "offload_in_progress": (OffloadInProgress, _Status.FAILED_PRECONDITION),
    "not_allowed": (NotAllowed, _Status.PERMISSION_DENIED),
    "not_leader_for_partition": (NotLeaderForPartition, _Status.UNAVAILABLE),
    "unavailable": (Unavailable, _Status.UNAVAILABLE),
}
_CODE_OF = ErrorTable({kind: code for code, (kind, _) in CODES.items()})

TRANSPORT: Mapping[grpc.StatusCode, type[KledgerError]] = {
    _Status.UNAVAILABLE: Unavailable,
    _Status.CANCELLED: Unavailable,
    _Status.DEADLINE_EXCEEDED: Unavailable,
    _Status.RESOURCE_EXHAUSTED: Unavailable,
    # Also raised by a write that crosses the peer's end of the stream.
    _Status.INTERNAL: Unavailable,
    _Status.UNIMPLEMENTED: NotAllowed,
    _Status.PERMISSION_DENIED: NotAllowed,
    _Status.UNAUTHENTICATED: NotAllowed,
}


def code_of(error: KledgerError) -> str:
    """Return the code of an error's class, or of the nearest class above it."""
    return _CODE_OF.get(error, "internal")


def error_of(code: str, text: str) -> KledgerError:
    """Return the error of a code; an unknown code of a newer version is shown with the text."""
    if code not in CODES:
        return KledgerError(f"{text} ({code})")
    return CODES[code][0](text)


def message_of(error: KledgerError) -> pb.Error:
    """Return an error as a message of a stream."""
    return pb.Error(code=code_of(error), message=str(error)[:TEXT_LENGTH_MAX])


async def abort(context: Context, error: KledgerError) -> NoReturn:
    """End a call with this error; raises the exception of the transport."""
    code = code_of(error)
    await context.abort(
        CODES[code][1], str(error)[:TEXT_LENGTH_MAX], trailing_metadata=((ERROR_KEY, code),)
    )
    raise AssertionError("abort returned")


def error_of_call(error: grpc.aio.AioRpcError, address: str) -> KledgerError:
    """Return the error of a failed call."""
    text = error.details() or error.code().name
    code = _code_in(error)
    if code is not None:
        return error_of(code, text)
    kind = TRANSPORT.get(error.code(), KledgerError)
    return kind(f"{address}: {text}")


def is_lost(error: grpc.aio.AioRpcError) -> bool:
    """Return whether the connection failed, and not the call."""
    return _code_in(error) is None and error.code() is _Status.UNAVAILABLE


def _code_in(error: grpc.aio.AioRpcError) -> str | None:
    found = (error.trailing_metadata() or {}).get(ERROR_KEY)
    return found if isinstance(found, str) else None
