"""Fetch by hand against the compiled codec, in every version."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kledger.gateway.wire.codec import decode, encode
from kledger.gateway.wire.errors import MalformedMessage
from kledger.gateway.wire.fetch_codec import (
    FetchPartition,
    FetchResult,
    ParsedFetchRequest,
    encode_fetch_response,
    fetch_response_frame,
    parse_fetch_request,
)
from kledger.gateway.wire.header import response_prefix
from kledger.gateway.wire.messages import k01_fetch as messages
from kledger.gateway.wire.primitives import ELEMENTS_MAX
from tests.gateway.wire.facts import versions
from tests.gateway.wire.random_messages import (
    assert_refused_when_cut,
    message_of,
    sample,
    settle,
)

VERSIONS = versions(messages.FetchRequest)
quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
every_version = pytest.mark.parametrize("version", VERSIONS)


def key_of(topic: messages.FetchTopic | messages.ForgottenTopic, version: int) -> bytes:
    return topic.topic_id.bytes if version >= 13 else topic.topic.encode()


def partitions_compiled(request: messages.FetchRequest, version: int) -> list[FetchPartition]:
    return [
        (
            key_of(topic, version),
            one.partition,
            one.current_leader_epoch,
            one.fetch_offset,
            one.last_fetched_epoch,
            one.log_start_offset,
            one.partition_max_bytes,
        )
        for topic in request.topics
        for one in topic.partitions
    ]


def assert_equal(request: messages.FetchRequest, version: int, by_hand: ParsedFetchRequest) -> None:
    assert partitions_compiled(request, version) == by_hand.partitions
    assert [
        (key_of(topic, version), index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ] == by_hand.forgotten
    for name in (
        "max_wait_ms", "min_bytes", "max_bytes", "isolation_level", "session_id", "session_epoch",
        "rack_id", "replica_id",
    ):  # fmt: skip
        assert getattr(request, name) == getattr(by_hand, name), name


@quick
@given(drawn=message_of(messages.FetchRequest))
def test_request_is_read_as_the_compiled_codec_reads_it(drawn: messages.FetchRequest) -> None:
    for version in VERSIONS:
        settled = settle(drawn, version)
        assert isinstance(settled, messages.FetchRequest)
        frame = b"head" + encode(settled, version) + b"trailing"
        assert_equal(settled, version, parse_fetch_request(memoryview(frame), version, 4))


@every_version
@pytest.mark.parametrize("has_tags", [False, True])
def test_request_with_many_partitions(version: int, has_tags: bool) -> None:
    """Partitions of one width are read in one go; tags on some of them make widths differ."""
    request = messages.FetchRequest(
        session_id=4,
        topics=[
            messages.FetchTopic(
                topic="n" * 200,
                topic_id=UUID(int=number),
                partitions=[
                    messages.FetchPartition(
                        partition=index,
                        fetch_offset=2**40 + index,
                        high_watermark=index if has_tags and index % 3 == 0 else 2**63 - 1,
                    )
                    for index in range(130)
                ],
            )
            for number in range(3)
        ],
        forgotten_topics_data=[
            messages.ForgottenTopic(topic="f", partitions=list(range(200))) for _ in range(2)
        ],
    )
    settled = settle(request, version)
    assert isinstance(settled, messages.FetchRequest)
    body = encode(settled, version)
    assert_equal(settled, version, parse_fetch_request(memoryview(body), version))


@every_version
def test_truncated_request_is_refused_at_every_byte(version: int) -> None:
    assert_refused_when_cut(messages.FetchRequest, version, parse_fetch_request)


@quick
@given(data=st.data())
def test_garbage_ends_in_a_request_or_a_refusal(data: st.DataObject) -> None:
    garbage = data.draw(st.binary(max_size=60))
    for version in VERSIONS:
        body = encode(settle(sample(messages.FetchRequest), version), version)
        at = data.draw(st.integers(0, len(body)))
        for attempt in (garbage, body[:at] + garbage, body[:at] + b"\xff" * 9):
            try:
                parse_fetch_request(memoryview(attempt), version)
            except MalformedMessage:
                continue


def test_request_can_be_built_by_hand() -> None:
    parsed = parse_fetch_request(memoryview(encode(messages.FetchRequest(rack_id="r"), 12)), 12)
    built = ParsedFetchRequest((-1, 0, 0, 2**31 - 1, 0, 0, -1), [], [], "r")
    assert all(
        getattr(built, name) == getattr(parsed, name) for name in ParsedFetchRequest.__slots__
    )


@pytest.mark.parametrize("version", [11, 12])
def test_partitions_of_one_request_are_limited(version: int) -> None:
    """A forgotten partition takes four bytes on the wire and thirty times that in memory."""
    topic = messages.ForgottenTopic(topic="t", partitions=[0] * (ELEMENTS_MAX // 2 + 1))
    body = encode(messages.FetchRequest(forgotten_topics_data=[topic, topic]), version)
    with pytest.raises(MalformedMessage) as caught:
        parse_fetch_request(memoryview(body), version)
    assert "forgotten_topics_data[].partitions" == caught.value.field


names = st.text(min_size=1, max_size=4).map(str.encode)
int64s = st.integers(-(2**63), 2**63 - 1)
chunks = st.lists(st.binary(max_size=9) | st.just(b"r" * 300) | st.just(b"r" * 40000), max_size=3)
results = st.lists(
    st.builds(
        lambda *values: (*values, sum(map(len, values[-1]))),
        names | st.just(b"n" * 249),
        st.integers(0, 2**31 - 1),
        st.integers(-1, 133),
        int64s,
        int64s,
        int64s,
        st.none() | st.lists(st.tuples(int64s, int64s), max_size=3),
        chunks,
    ),
    max_size=4,
)


def compiled_response(
    version: int, results: Sequence[FetchResult], throttle: int, code: int, session: int
) -> bytes:
    """Build the same response from message objects."""
    topics = []
    for topic, group in groupby(results, lambda result: result[0]):
        key = {"topic_id": UUID(bytes=topic)} if version >= 13 else {"topic": topic.decode()}
        partitions = [
            messages.PartitionData(
                partition_index=index,
                error_code=error,
                high_watermark=high,
                last_stable_offset=stable,
                log_start_offset=start,
                aborted_transactions=None
                if aborted is None
                else [
                    messages.AbortedTransaction(producer_id=producer, first_offset=first)
                    for producer, first in aborted
                ],
                records=b"".join(chunks),
            )
            for _, index, error, high, stable, start, aborted, chunks, _ in group
        ]
        topics.append(messages.FetchableTopicResponse(**key, partitions=partitions))
    response = messages.FetchResponse(
        throttle_time_ms=throttle, error_code=code, session_id=session, responses=topics
    )
    return encode(response, version)


@quick
@given(
    drawn=results,
    throttle=st.integers(0, 2**31 - 1),
    code=st.integers(0, 133),
    session=st.integers(0, 2**31 - 1),
)
def test_response_has_the_bytes_of_the_compiled_codec(
    drawn: list[FetchResult], throttle: int, code: int, session: int
) -> None:
    for version in VERSIONS:
        made = [(one[0][:16].ljust(16, b"\0"), *one[1:]) if version >= 13 else one for one in drawn]
        body = compiled_response(version, made, throttle, code, session)
        values: dict[str, Any] = {
            "throttle_time_ms": throttle, "error_code": code, "session_id": session,
        }  # fmt: skip
        assert body == b"".join(encode_fetch_response(version, made, **values))
        prefix = response_prefix(8, 1, version, len(body))
        assert prefix + body == b"".join(fetch_response_frame(8, version, made, **values))


@every_version
def test_chunks_are_passed_on_without_a_copy(version: int) -> None:
    topic = bytes(16) if version >= 13 else b"t"
    stored = [memoryview(b"r" * 70), memoryview(b"s" * 80)]
    parts = encode_fetch_response(version, [(topic, 0, 0, 2, 2, 0, None, stored, 150)])
    assert [part for part in parts if isinstance(part, memoryview)] == stored
    assert all(any(part is chunk for part in parts) for chunk in stored)


@every_version
def test_nothing_to_return_is_empty_and_not_null(version: int) -> None:
    """librdkafka fails with "invalid MessageSetSize -1" on null records."""
    topic = bytes(16) if version >= 13 else b"t"
    body = b"".join(encode_fetch_response(version, [(topic, 0, 0, 2, 2, 0, None, (), 0)]))
    (partition,) = decode(messages.FetchResponse, version, body).responses[0].partitions
    assert b"" == partition.records
    assert None is partition.aborted_transactions
    assert -1 == partition.preferred_read_replica


def test_response_without_partitions() -> None:
    for version in VERSIONS:
        assert encode(messages.FetchResponse(), version) == b"".join(
            encode_fetch_response(version, [])
        )
