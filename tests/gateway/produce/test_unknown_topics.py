"""Requests that wait for what other brokers have changed."""

import pytest

from kledger.gateway.produce import unknown_topics
from kledger.gateway.produce.unknown_topics import UnknownTopics
from kledger.gateway.wire.error_codes import ErrorCode
from tests.gateway.recording_port import RecordingPort

UNKNOWN = [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def port(connection_id: int) -> RecordingPort:
    made = RecordingPort()
    made.connection_id = connection_id
    return made


async def catch_up() -> None:
    """Change nothing."""


async def wait(topics: UnknownTopics, waiting: RecordingPort) -> bool:
    """Let a request wait if it must; return whether it did."""
    work = topics.before(UNKNOWN, waiting)
    if work is not None:
        await work
    return work is not None


async def test_request_waits_once_and_the_next_one_of_its_connection_again() -> None:
    topics, one = UnknownTopics(catch_up), port(1)
    assert topics.before([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE], one) is None
    assert [True, False, False] == [await wait(topics, one) for _ in range(3)]
    topics.passed(one)
    assert await wait(topics, one)


async def test_broker_that_is_alone_waits_for_nobody() -> None:
    assert not await wait(UnknownTopics(None), port(1))


async def test_connections_do_not_wait_for_each_other() -> None:
    topics = UnknownTopics(catch_up)
    assert [True, True] == [await wait(topics, port(each)) for each in (1, 2)]
    topics.passed(port(1))
    assert not await wait(topics, port(2))


async def test_connection_that_was_closed_while_it_waited_is_not_remembered() -> None:
    topics, one = UnknownTopics(catch_up), port(1)
    one.is_closed = True
    assert [True, True] == [await wait(topics, one) for _ in range(2)]


async def test_one_more_connection_than_can_be_remembered_forgets_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unknown_topics, "CAUGHT_UP_MAX", 2)
    topics = UnknownTopics(catch_up)
    assert [True, True, True] == [await wait(topics, port(each)) for each in (1, 2, 3)]
    assert [True, False] == [await wait(topics, port(each)) for each in (1, 3)]
