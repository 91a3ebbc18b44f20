"""One Produce response, put together batch by batch."""

from kledger.gateway.produce.request import ProduceSlot
from kledger.gateway.wire.codec import decode
from kledger.gateway.wire.messages.k00_produce import PartitionProduceResponse, ProduceResponse
from kledger.gateway.wire.produce_codec import ParsedProduceRequest
from kledger.topics import AppendResult
from kledger.topics.errors import InvalidRecord, TopicStorageFailed
from tests.gateway.recording_port import RecordingPort

VERSION = 9


def make_slot(port: RecordingPort, *indexes: int, acks: int = -1) -> ProduceSlot:
    partitions = [(b"t", index) for index in indexes]
    slot = ProduceSlot(port, VERSION, 5, ParsedProduceRequest(None, acks, 0, partitions))
    if acks:
        port.open_slot(slot, is_exclusive=False)
    return slot


def results(frame: bytes) -> list[PartitionProduceResponse]:
    assert 5 == int.from_bytes(frame[4:8], "big")
    response = decode(ProduceResponse, VERSION, frame, 9)
    return [one for topic in response.responses for one in topic.partition_responses]


def test_response_is_written_when_the_last_batch_is_known() -> None:
    port = RecordingPort()
    slot = make_slot(port, 0, 1)
    slot.batch_appended(1, AppendResult(None, 40, -1, 7))
    assert [] == port.sent
    slot.batch_appended(0, AppendResult(None, 30, 99, 0))
    first, second = results(port.sent[0])
    assert (0, 0, 30, 99, 0) == (
        first.index, first.error_code, first.base_offset, first.log_append_time_ms,
        first.log_start_offset,
    )  # fmt: skip
    assert (1, 0, 40, -1, 7) == (
        second.index, second.error_code, second.base_offset, second.log_append_time_ms,
        second.log_start_offset,
    )  # fmt: skip


def test_rejected_batch_says_why_and_which_records() -> None:
    port = RecordingPort()
    error = InvalidRecord("two records are bad", ((3, "no key"),))
    make_slot(port, 0).batch_appended(0, AppendResult(error, -1, -1, 2))
    (one,) = results(port.sent[0])
    assert (87, -1, 2) == (one.error_code, one.base_offset, one.log_start_offset)
    assert "two records are bad" == one.error_message
    assert [(3, "no key")] == [
        (record.batch_index, record.batch_index_error_message) for record in one.record_errors
    ]


def test_acks_0_sends_nothing_but_fails_on_an_error() -> None:
    port = RecordingPort()
    make_slot(port, 0, acks=0).batch_appended(0, AppendResult(None, 1, -1, 0))
    assert ([], []) == (port.sent, port.failures)
    make_slot(port, 0, acks=0).batch_appended(
        0, AppendResult(TopicStorageFailed("full"), -1, -1, 0)
    )
    assert [] == port.sent
    assert "full" in port.failures[0]
