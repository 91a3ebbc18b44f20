"""Produce by hand against the compiled codec, in every version."""

from collections.abc import Sequence
from itertools import groupby
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.errors import MalformedMessage
from kledger.gateway.wire.header import response_prefix
from kledger.gateway.wire.messages import k00_produce as messages
from kledger.gateway.wire.produce_codec import (
    ParsedProduceRequest,
    PartitionResult,
    encode_produce_response,
    find_single_batch,
    parse_produce_request,
    produce_response_frame,
)
from tests.gateway.wire.facts import versions
from tests.gateway.wire.random_messages import (
    assert_refused_when_cut,
    message_of,
    sample,
    settle,
)

VERSIONS = versions(messages.ProduceRequest)
quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
every_version = pytest.mark.parametrize("version", VERSIONS)

PartitionValue = tuple[bytes, int, bytes | None]


def values_by_hand(request: ParsedProduceRequest, frame: bytes) -> list[PartitionValue]:
    return [
        (topic, index, None if size == -1 else frame[start : start + size])
        for topic, index, start, size in request.partitions
    ]


def values_compiled(request: messages.ProduceRequest, version: int) -> list[PartitionValue]:
    return [
        (
            topic.topic_id.bytes if version >= 13 else topic.name.encode(),
            one.index,
            None if one.records is None else bytes(one.records),
        )
        for topic in request.topic_data
        for one in topic.partition_data
    ]


@quick
@given(drawn=message_of(messages.ProduceRequest))
def test_request_is_read_as_the_compiled_codec_reads_it(drawn: messages.ProduceRequest) -> None:
    for version in VERSIONS:
        body = encode(settle(drawn, version), version)
        frame = b"a header" + body + b"trailing"
        compiled = decode(messages.ProduceRequest, version, body)
        by_hand = parse_produce_request(memoryview(frame), version, 8)
        assert values_compiled(compiled, version) == values_by_hand(by_hand, frame)
        assert (compiled.transactional_id, compiled.acks, compiled.timeout_ms) == (
            by_hand.transactional_id,
            by_hand.acks,
            by_hand.timeout_ms,
        )


@every_version
def test_request_with_many_and_long_parts(version: int) -> None:
    """Counts above 126 and lengths above 127 take more than one byte in a varint."""
    request = messages.ProduceRequest(
        transactional_id="t" * 300,
        topic_data=[
            messages.TopicProduceData(
                name="n" * 249,
                topic_id=UUID(int=number),
                partition_data=[
                    messages.PartitionProduceData(index=index, records=b"r" * (index * 200))
                    for index in range(130 if number == 3 else 1)
                ],
            )
            for number in range(140)
        ],
    )
    body = encode(request, version)
    by_hand = parse_produce_request(memoryview(body), version)
    assert values_compiled(request, version) == values_by_hand(by_hand, body)
    assert "t" * 300 == by_hand.transactional_id


@every_version
def test_unknown_tags_of_a_request_are_stepped_over(version: int) -> None:
    if version < 9:
        return  # there are no tagged fields yet
    key = UUID(int=9).bytes if version >= 13 else b"\x02n"
    tags = b"\x01\x05\x03xyz"
    partition = b"\x00\x00\x00\x04" + b"\x03re"
    body = b"\x00\x00\x01\x00\x00\x00\x09\x02" + key + b"\x02" + partition + tags + tags + tags
    by_hand = parse_produce_request(memoryview(body), version)
    assert values_by_hand(by_hand, body) == [(key[-16:].removeprefix(b"\x02"), 4, b"re")]


@every_version
def test_truncated_request_is_refused_at_every_byte(version: int) -> None:
    assert_refused_when_cut(messages.ProduceRequest, version, parse_produce_request)


@quick
@given(data=st.data())
def test_garbage_is_refused_or_stays_inside_the_frame(data: st.DataObject) -> None:
    garbage = data.draw(st.binary(max_size=60))
    for version in VERSIONS:
        body = bytearray(encode(settle(sample(messages.ProduceRequest), version), version))
        at = data.draw(st.integers(0, len(body)))
        for attempt in (garbage, bytes(body[:at]) + garbage, bytes(body[:at]) + b"\xff" * 9):
            try:
                request = parse_produce_request(memoryview(attempt), version)
            except MalformedMessage:
                continue
            for _, _, start, size in request.partitions:
                assert 0 <= start <= len(attempt)
                assert -1 <= size <= len(attempt) - start


def framed(
    version: int,
    *,
    topics: int = 1,
    partitions: int = 1,
    name: str = "n",
    records: bytes | None = b"r" * 300,
    transactional_id: str | None = None,
) -> bytes:
    """Return a request behind a header of three bytes."""
    data = [messages.PartitionProduceData(index=7, records=records)] * partitions
    topic = messages.TopicProduceData(name=name, topic_id=UUID(int=5), partition_data=data)
    request = messages.ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=1, topic_data=[topic] * topics
    )
    return b"abc" + encode(settle(request, version), version)


@every_version
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 70_000])
@pytest.mark.parametrize("name", ["", "n", "n" * 126])
def test_single_batch_is_found_where_the_parser_finds_it(
    version: int, size: int, name: str
) -> None:
    frame = memoryview(framed(version, name=name, records=b"r" * size))
    found = find_single_batch(frame, version, 3)
    assert found is not None
    head, start, length = found
    (expected,) = parse_produce_request(frame, version, 3).partitions
    assert (start, length) == expected[2:]
    assert bytes(frame[3:]).startswith(head)
    assert head.endswith(b"\0\0\0\7")


@every_version
def test_other_shapes_hold_no_single_batch(version: int) -> None:
    frame = framed(version)
    assert find_single_batch(memoryview(frame + b"\0"), version, 3) is None
    nothing = framed(version, records=None)
    for size in range(len(nothing) + 1):
        assert find_single_batch(memoryview(nothing[:size]), version, 3) is None
    for size in range(len(frame)):
        assert find_single_batch(memoryview(frame[:size]), version, 3) is None
    for other in (
        framed(version, transactional_id="t"),
        framed(version, transactional_id=""),
        framed(version, topics=0),
        framed(version, topics=2),
        framed(version, partitions=0),
        framed(version, partitions=2),
    ):
        assert find_single_batch(memoryview(other), version, 3) is None


@quick
@given(data=st.data())
def test_whatever_holds_a_single_batch_is_parsed_as_one(data: st.DataObject) -> None:
    garbage = data.draw(st.binary(max_size=20))
    for version in VERSIONS:
        frame = bytearray(framed(version, records=data.draw(st.binary(max_size=9))))
        at = data.draw(st.integers(3, len(frame) - 1))
        frame[at : at + len(garbage)] = garbage
        found = find_single_batch(memoryview(frame), version, 3)
        if found is not None:
            request = parse_produce_request(memoryview(frame), version, 3)
            assert request.transactional_id is None
            assert [found[1:]] == [one[2:] for one in request.partitions]


def test_request_can_be_built_by_hand() -> None:
    body = encode(messages.ProduceRequest(transactional_id="t", acks=1, timeout_ms=2), 9)
    parsed = parse_produce_request(memoryview(body), 9)
    built = ParsedProduceRequest("t", 1, 2, [])
    assert all(
        getattr(built, name) == getattr(parsed, name) for name in ParsedProduceRequest.__slots__
    )


def test_null_topic_name_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="got null"):
        parse_produce_request(memoryview(bytes(7) + b"\x02\x00" + bytes(9)), 9)


names = st.text(min_size=1, max_size=4).map(str.encode)
refused = st.lists(st.tuples(st.integers(0, 99), st.none() | st.text(max_size=3)), max_size=2)
int64s = st.integers(-(2**63), 2**63 - 1)
results = st.lists(
    st.tuples(
        names | st.just(b"n" * 249),
        st.integers(0, 2**31 - 1),
        st.integers(-1, 133),
        int64s,
        int64s,
        int64s,
        st.none() | st.text(max_size=3) | st.just("m" * 200),
        refused,
    ),
    max_size=4,
)


def compiled_response(
    version: int, results: Sequence[PartitionResult], throttle_time_ms: int
) -> bytes:
    """Build the same response from message objects."""
    topics = []
    for topic, group in groupby(results, lambda result: result[0]):
        key = {"topic_id": UUID(bytes=topic)} if version >= 13 else {"name": topic.decode()}
        partitions = [
            messages.PartitionProduceResponse(
                index=index,
                error_code=code,
                base_offset=base,
                log_append_time_ms=append_time,
                log_start_offset=log_start,
                error_message=message,
                record_errors=[
                    messages.BatchIndexAndErrorMessage(
                        batch_index=at, batch_index_error_message=reason
                    )
                    for at, reason in record_errors
                ],
            )
            for _, index, code, base, append_time, log_start, message, record_errors in group
        ]
        topics.append(messages.TopicProduceResponse(**key, partition_responses=partitions))
    response = messages.ProduceResponse(responses=topics, throttle_time_ms=throttle_time_ms)
    return encode(response, version)


def keyed(results: Sequence[PartitionResult], version: int) -> list[PartitionResult]:
    """Make topic ids of the names where the version has ids."""
    if version < 13:
        return list(results)
    return [(result[0][:16].ljust(16, b"\0"), *result[1:]) for result in results]


@quick
@given(drawn=results, throttle=st.integers(0, 2**31 - 1), correlation_id=st.integers(0, 2**31 - 1))
def test_response_has_the_bytes_of_the_compiled_codec(
    drawn: list[PartitionResult], throttle: int, correlation_id: int
) -> None:
    for version in VERSIONS:
        made = keyed(drawn, version)
        body = compiled_response(version, made, throttle)
        assert body == encode_produce_response(version, made, throttle)
        prefix = response_prefix(correlation_id, 0, version, len(body))
        assert prefix + body == produce_response_frame(correlation_id, version, made, throttle)


@every_version
@pytest.mark.parametrize("name_size", [1, 126, 127, 249])
def test_response_for_one_partition(version: int, name_size: int) -> None:
    topic = bytes(16) if version >= 13 else b"n" * name_size
    one: PartitionResult = (topic, 3, 0, 2**40, -1, 7, None, ())
    assert compiled_response(version, [one], 5) == encode_produce_response(version, [one], 5)


def test_topics_that_return_later_get_an_entry_of_their_own() -> None:
    made: list[PartitionResult] = [
        (topic, 0, 0, 0, -1, 0, None, ()) for topic in (b"a", b"b", b"b", b"a")
    ]
    response = decode(messages.ProduceResponse, 9, encode_produce_response(9, made))
    assert ["a", "b", "a"] == [topic.name for topic in response.responses]
    assert [1, 2, 1] == [len(topic.partition_responses) for topic in response.responses]
