"""Errors between a native client and its server: one table, read in both directions.

Rule: a code is a stable word and belongs to one class of `native.errors`; what is not in the table
is a KledgerError. An error of a whole call travels in the metadata `kledger-error` with its text as
the details of the status. A status without a code comes from the transport and means what it says.
Must not know: what failed.
"""

from collections.abc import Mapping
from typing import NoReturn

import grpc
import grpc.aio

from kledger.native.errors import (
    AlreadyClosed,
    ConsumerAssign,
    ConsumerBusy,
    InvalidArgument,
    KledgerError,
    NotAllowed,
    NotInSequence,
    SubscriptionFenced,
    SubscriptionNotFound,
    Timeout,
    TopicExists,
    TopicNotFound,
    TopicTerminated,
    Unavailable,
)
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.native.rpc.protocol import Context

ERROR_KEY = "kledger-error"
TEXT_LENGTH_MAX = 2_000
"""Longer ones are cut: a status travels in headers, whose size is limited."""

_Status = grpc.StatusCode

CODES: Mapping[str, tuple[type[KledgerError], grpc.StatusCode]] = {
    "internal": (KledgerError, _Status.INTERNAL),
    "topic_not_found": (TopicNotFound, _Status.NOT_FOUND),
    "topic_exists": (TopicExists, _Status.ALREADY_EXISTS),
    "topic_terminated": (TopicTerminated, _Status.FAILED_PRECONDITION),
    "consumer_busy": (ConsumerBusy, _Status.FAILED_PRECONDITION),
    "consumer_assign": (ConsumerAssign, _Status.FAILED_PRECONDITION),
    "subscription_not_found": (SubscriptionNotFound, _Status.NOT_FOUND),
    "subscription_fenced": (SubscriptionFenced, _Status.ABORTED),
    "already_closed": (AlreadyClosed, _Status.FAILED_PRECONDITION),
    "timeout": (Timeout, _Status.DEADLINE_EXCEEDED),
    "invalid_argument": (InvalidArgument, _Status.INVALID_ARGUMENT),
    "not_in_sequence": (NotInSequence, _Status.FAILED_PRECONDITION),
    "not_allowed": (NotAllowed, _Status.PERMISSION_DENIED),
    "unavailable": (Unavailable, _Status.UNAVAILABLE),
}
_CODE_OF = {kind: code for code, (kind, _) in CODES.items()}

TRANSPORT: Mapping[grpc.StatusCode, type[KledgerError]] = {
    _Status.UNAVAILABLE: Unavailable,
    _Status.CANCELLED: Unavailable,
    _Status.DEADLINE_EXCEEDED: Unavailable,
    _Status.RESOURCE_EXHAUSTED: Unavailable,
    # Also what the transport makes of a write that crossed the other side's end of the stream.
    _Status.INTERNAL: Unavailable,
    _Status.UNIMPLEMENTED: NotAllowed,
    _Status.PERMISSION_DENIED: NotAllowed,
    _Status.UNAUTHENTICATED: NotAllowed,
}


def code_of(error: KledgerError) -> str:
    """Return the code of an error's class, or of the nearest class above it."""
    return next(_CODE_OF[kind] for kind in type(error).__mro__ if kind in _CODE_OF)


def error_of(code: str, text: str) -> KledgerError:
    """Return what a code stands for; a code of a newer version is shown with the text."""
    if code not in CODES:
        return KledgerError(f"{text} ({code})")
    return CODES[code][0](text)


def message_of(error: KledgerError) -> pb.Error:
    """Put an error into a message of a stream."""
    return pb.Error(code=code_of(error), message=str(error)[:TEXT_LENGTH_MAX])


async def abort(context: Context, error: KledgerError) -> NoReturn:
    """End a call with this error; raises what the transport wants to see."""
    code = code_of(error)
    await context.abort(
        CODES[code][1], str(error)[:TEXT_LENGTH_MAX], trailing_metadata=((ERROR_KEY, code),)
    )
    raise AssertionError("abort returned")


def error_of_call(error: grpc.aio.AioRpcError, address: str) -> KledgerError:
    """Return what a call that failed means."""
    text = error.details() or error.code().name
    code = _code_in(error)
    if code is not None:
        return error_of(code, text)
    kind = TRANSPORT.get(error.code(), KledgerError)
    return kind(f"{address}: {text}")


def is_lost(error: grpc.aio.AioRpcError) -> bool:
    """Tell whether the connection failed, and not the call."""
    return _code_in(error) is None and error.code() is _Status.UNAVAILABLE


def _code_in(error: grpc.aio.AioRpcError) -> str | None:
    found = (error.trailing_metadata() or {}).get(ERROR_KEY)
    return found if isinstance(found, str) else None
