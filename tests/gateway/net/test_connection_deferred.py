"""A response that is encoded at the end of the tick in which its result was resolved."""

from kledger.gateway.net.connection import DeferredSlot
from kledger.gateway.wire.header import RequestHeader
from kledger.runtime.deferred import Deferred
from tests.gateway.recording_port import RecordingPort

HEADER = RequestHeader(12, 0, 7, None, 0)


def begun(deferred: Deferred[bytes]) -> RecordingPort:
    port = RecordingPort()
    DeferredSlot(port, HEADER, deferred).begin()
    assert port.state.is_exclusive
    return port


def test_response_is_sent_at_the_end_of_the_tick_of_its_result() -> None:
    deferred = Deferred[bytes]()
    port = begun(deferred)
    port.end_tick()

    deferred.resolve(b"body")
    assert port.sent == []
    port.end_tick()

    assert [b"\0\0\0\x08\0\0\0\x07body"] == port.sent
    assert not port.state.is_exclusive


def test_response_that_cannot_be_made_closes_its_own_connection_only() -> None:
    deferred = Deferred[bytes]()
    port = begun(deferred.mapped(lambda body: body[len(body) // 0 :]))

    deferred.resolve(b"body")
    port.end_tick()

    assert (True, []) == (port.is_aborted, port.sent)
