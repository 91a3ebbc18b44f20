"""A response that is made at the end of the turn in which its result came."""

from kledger.gateway.later_slot import LaterSlot
from kledger.gateway.wire.header import RequestHeader
from kledger.runtime.later import Later
from tests.gateway.recording_port import RecordingPort

HEADER = RequestHeader(12, 0, 7, None, 0)


def begun(later: Later[bytes]) -> RecordingPort:
    port = RecordingPort()
    LaterSlot(port, HEADER, later).begin()
    assert port.state.is_exclusive
    return port


def test_response_leaves_at_the_end_of_the_turn_in_which_the_result_came() -> None:
    later = Later[bytes]()
    port = begun(later)
    port.end_turn()

    later.settle(b"body")
    assert port.sent == []
    port.end_turn()

    assert [b"\0\0\0\x08\0\0\0\x07body"] == port.sent
    assert not port.state.is_exclusive


def test_response_that_cannot_be_made_closes_its_own_connection_only() -> None:
    later = Later[bytes]()
    port = begun(later.mapped(lambda body: body[len(body) // 0 :]))

    later.settle(b"body")
    port.end_turn()

    assert (True, []) == (port.is_aborted, port.sent)
