"""Leader hints, against the compiled codec."""

from typing import Any

import pytest

from kledger.gateway.wire.codec import decode
from kledger.gateway.wire.fetch_codec import encode_fetch_response
from kledger.gateway.wire.leader_hints import NO_HINTS, LeaderHints, response_tags
from kledger.gateway.wire.messages import k00_produce, k01_fetch
from kledger.gateway.wire.produce_codec import hinted_produce_response_frame

HINTS = LeaderHints({(b"t", 1): (7, 3), (b"u", 0): (8, 0)}, ((7, "a", 9092), (8, "b" * 300, 1)))


def by_id(hints: LeaderHints) -> LeaderHints:
    leaders = {(key.ljust(16, b"\0"), index): one for (key, index), one in hints.leaders.items()}
    return LeaderHints(leaders, hints.endpoints)


def leaders_of(partitions: Any) -> list[tuple[int, int]]:
    return [(one.current_leader.leader_id, one.current_leader.leader_epoch) for one in partitions]


def endpoints_of(response: Any) -> list[tuple[int, str, int, str | None]]:
    return [(one.node_id, one.host, one.port, one.rack) for one in response.node_endpoints]


@pytest.mark.parametrize("version", range(10, 14))
def test_produce_names_the_leaders(version: int) -> None:
    keys, hints = (b"t", b"u"), HINTS
    if version >= 13:
        keys, hints = (b"t".ljust(16, b"\0"), b"u".ljust(16, b"\0")), by_id(HINTS)
    results = [
        (keys[0], 0, 0, 5, -1, 0, None, ()),
        (keys[0], 1, 6, -1, -1, -1, "elsewhere", ()),
        (keys[1], 0, 6, -1, -1, -1, None, ()),
    ]
    frame = hinted_produce_response_frame(4, version, results, 0, hints)
    assert len(frame) - 4 == int.from_bytes(frame[:4], "big")
    response = decode(k00_produce.ProduceResponse, version, frame, 9)
    first, second = (topic.partition_responses for topic in response.responses)
    assert leaders_of(first) == [(-1, -1), (7, 3)]
    assert leaders_of(second) == [(8, 0)]
    assert endpoints_of(response) == [(7, "a", 9092, None), (8, "b" * 300, 1, None)]


@pytest.mark.parametrize("version", [16, 17, 18])
def test_fetch_names_the_leaders(version: int) -> None:
    keys = b"t".ljust(16, b"\0"), b"u".ljust(16, b"\0")
    results = [
        (keys[0], 0, 0, 1, 1, 0, None, (b"records",), 7),
        (keys[0], 1, 74, -1, -1, -1, None, (), 0),
        (keys[1], 0, 6, -1, -1, -1, (), (), 0),
    ]
    body = b"".join(encode_fetch_response(version, results, hints=by_id(HINTS)))
    response = decode(k01_fetch.FetchResponse, version, body)
    first, second = (topic.partitions for topic in response.responses)
    assert leaders_of(first) == [(-1, -1), (7, 3)]
    assert leaders_of(second) == [(8, 0)]
    assert first[0].records == b"records"
    assert endpoints_of(response) == [(7, "a", 9092, None), (8, "b" * 300, 1, None)]


def test_nothing_is_written_without_endpoints() -> None:
    assert response_tags(NO_HINTS) == b"\0"
