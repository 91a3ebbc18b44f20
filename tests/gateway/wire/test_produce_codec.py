"""Produce read three ways, in every version: as one batch, by the parser, by the compiled codec."""

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
    Records,
    encode_produce_response,
    find_single_batch,
    parse_produce_request,
    produce_response_frame,
)
from tests.gateway.wire.facts import versions
from tests.gateway.wire.random_messages import (
    assert_refused_when_cut,
    message_of,
    settle,
)

VERSIONS = versions(messages.ProduceRequest)
quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
every_version = pytest.mark.parametrize("version", VERSIONS)

PartitionValue = tuple[bytes, int, bytes | None]


def values_parsed(request: ParsedProduceRequest, records: Records) -> list[PartitionValue]:
    return [
        (topic, index, None if each is None else bytes(each))
        for (topic, index), each in zip(request.partitions, records, strict=True)
    ]


def parsed(frame: bytes, version: int, pos: int = 0) -> list[PartitionValue]:
    return values_parsed(*parse_produce_request(memoryview(frame), version, pos))


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
        request, records = parse_produce_request(memoryview(frame), version, 8)
        assert values_compiled(compiled, version) == values_parsed(request, records)
        assert (compiled.transactional_id, compiled.acks, compiled.timeout_ms) == request[:3]


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
    found, records = parse_produce_request(memoryview(body), version)
    assert values_compiled(request, version) == values_parsed(found, records)
    assert "t" * 300 == found.transactional_id


@every_version
def test_unknown_tags_of_a_request_are_stepped_over(version: int) -> None:
    if version < 9:
        return  # there are no tagged fields yet
    key = UUID(int=9).bytes if version >= 13 else b"\x02n"
    tags = b"\x01\x05\x03xyz"
    partition = b"\x00\x00\x00\x04" + b"\x03re"
    body = b"\x00\x00\x01\x00\x00\x00\x09\x02" + key + b"\x02" + partition + tags + tags + tags
    assert parsed(body, version) == [(key[-16:].removeprefix(b"\x02"), 4, b"re")]


@every_version
def test_truncated_request_is_refused_at_every_byte(version: int) -> None:
    assert_refused_when_cut(messages.ProduceRequest, version, parse_produce_request)


def damaged(data: st.DataObject, frame: bytes) -> bytes:
    """Return a frame cut, overwritten or grown somewhere; or as it was."""
    garbage = data.draw(st.binary(max_size=20) | st.just(b"\xff" * 9))
    at = data.draw(st.integers(0, len(frame)))
    kept = data.draw(st.sampled_from((at, at + len(garbage), len(frame))))
    return frame[:at] + garbage + frame[kept:]


def compiled_or_fault(frame: bytes, version: int, pos: int) -> list[PartitionValue] | str:
    """Return what the compiled codec finds, or the message of its fault."""
    try:
        return values_compiled(decode(messages.ProduceRequest, version, frame, pos), version)
    except MalformedMessage as fault:
        return str(fault)


def parsed_or_fault(frame: bytes, version: int, pos: int) -> list[PartitionValue] | str:
    """Return what the parser finds, or the message of its fault."""
    try:
        return parsed(frame, version, pos)
    except MalformedMessage as fault:
        return str(fault)


requests = message_of(messages.ProduceRequest) | st.builds(
    messages.ProduceRequest,
    transactional_id=st.none() | st.text(max_size=3),
    acks=st.integers(-2, 2),
    topic_data=st.lists(
        st.builds(
            messages.TopicProduceData,
            name=st.text(max_size=3),
            topic_id=st.uuids(),
            partition_data=st.lists(
                st.builds(
                    messages.PartitionProduceData,
                    index=st.integers(0, 2**31 - 1),
                    records=st.none() | st.binary(max_size=9) | st.just(b"r" * 200),
                ),
                max_size=3,
            ),
        ),
        max_size=3,
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(request=requests, tags=st.booleans(), data=st.data())
def test_all_ways_find_the_same_batches_in_every_request(
    request: messages.ProduceRequest, tags: bool, data: st.DataObject
) -> None:
    """Several topics and partitions, null records, tagged fields, transactions, damaged bytes."""
    for version in VERSIONS:
        body = encode(settle(request, version), version)
        if tags and version >= 9:
            body = body[:-1] + b"\x01\x05\x03xyz"
        frame = b"abc" + body
        for attempt in (frame, b"abc" + damaged(data, body)):
            compiled = compiled_or_fault(attempt, version, 3)
            by_parser = parsed_or_fault(attempt, version, 3)
            # The parser leaves names as they are: one that is no text is an unknown topic.
            if not (isinstance(compiled, str) and "name" in compiled and "UTF-8" in compiled):
                assert compiled == by_parser
            single = find_single_batch(memoryview(attempt), version, 3)
            if single is not None:
                found, records = parse_produce_request(memoryview(attempt), version, 3)
                assert found.transactional_id is None
                assert [single[1]] == list(records)
                assert attempt[3:].startswith(single[0])


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
    head, records = found
    assert [records] == list(parse_produce_request(frame, version, 3)[1])
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
