"""The table of errors is whole and stable."""

from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata

import kledger.native.errors
from kledger.native.errors import (
    ConsumerBusy,
    Full,
    KledgerError,
    TopicNotFound,
    Unavailable,
    Unreadable,
)
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.native.rpc.protocol import (
    CODES,
    ERROR_KEY,
    TEXT_LENGTH_MAX,
    code_of,
    error_of,
    error_of_call,
    message_of,
)

RAISED_BY_CLIENTS = {Full, Unreadable}
"""Status codes that a server never sends."""


def test_every_error_has_a_code_of_its_own() -> None:
    classes = {
        each
        for each in vars(kledger.native.errors).values()
        if isinstance(each, type) and issubclass(each, KledgerError)
    }
    assert classes - RAISED_BY_CLIENTS == {kind for kind, _ in CODES.values()}
    assert len(CODES) == len({kind for kind, _ in CODES.values()})


def test_codes_are_the_ones_that_clients_know() -> None:
    """Clients of other versions depend on these words: add to them, never change one."""
    assert {
        "internal", "topic_not_found", "topic_exists", "topic_terminated", "consumer_busy",
        "consumer_assign", "subscription_not_found", "subscription_fenced", "already_closed",
        "timeout", "invalid_argument", "not_in_sequence", "not_allowed", "unavailable",
        "compaction_running", "illegal_state", "illegal_argument", "subscriber_disconnected",
        "subscriber_group_destroyed", "topic_full", "function_failed", "namespace_not_found",
            "namespace_exists",
        "offload_in_progress", "not_leader_for_partition",
    } == set(CODES)  # fmt: skip


def test_error_codes_convert_both_ways() -> None:
    for code, (kind, _) in CODES.items():
        assert code == code_of(kind("x"))
        assert kind is type(error_of(code, "x"))


def test_class_below_a_known_one_has_its_code() -> None:
    class Gone(TopicNotFound):
        pass

    class Odd(KledgerError):
        pass

    assert ("topic_not_found", "internal") == (code_of(Gone("x")), code_of(Odd("x")))


def test_code_of_a_newer_version_is_shown() -> None:
    error = error_of("moon_phase", "not tonight")
    assert (KledgerError, "not tonight (moon_phase)") == (type(error), str(error))


def test_write_that_crosses_the_end_of_a_stream_is_a_loss() -> None:
    """gRPC reports INTERNAL without an error code; a client must reconnect after it."""
    crossed = AioRpcError(StatusCode.INTERNAL, Metadata(), Metadata(), "Internal error from Core")
    assert Unavailable is type(error_of_call(crossed, "here"))
    ours = Metadata((ERROR_KEY, "internal"))
    error = AioRpcError(StatusCode.INTERNAL, Metadata(), ours, "the server failed")
    assert KledgerError is type(error_of_call(error, "here"))


def test_long_text_is_cut() -> None:
    message = message_of(ConsumerBusy("x" * 10_000))
    assert pb.Error(code="consumer_busy", message="x" * TEXT_LENGTH_MAX) == message
