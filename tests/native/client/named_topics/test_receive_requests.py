"""Receives that wait: who gets the elements of one that is cancelled."""

import asyncio

import pytest

from kledger.named_topics.model import CommitOutcome
from kledger.native.channel_position import ChannelPosition
from kledger.native.client.named_topics.element import Element
from kledger.native.client.named_topics.receive_requests import (
    Received,
    ReceiveRequest,
    ReceiveRequests,
)


def received(*offsets: int) -> Received:
    return [Element(0, 1, each, 0, b"v", uncommitted) for each in offsets]


def uncommitted(channel: int, position: ChannelPosition) -> "asyncio.Future[CommitOutcome]":
    raise AssertionError("nothing is committed here")


def offsets(found: Received) -> list[int]:
    return [each.offset for each in found]


async def served(*found: Received) -> tuple[ReceiveRequests, list[ReceiveRequest]]:
    requests = ReceiveRequests()
    each_request = [requests.add(5) for _ in found]
    for request, elements in zip(each_request, found, strict=True):
        requests.serve(request, elements)
    return requests, each_request


async def test_elements_of_a_cancelled_receive_move_on_to_those_behind_it() -> None:
    requests, (first, second, third) = await served(received(0, 1), received(2), received(3, 4))
    assert [3, 4] == offsets(requests.give_back(first))
    assert [0] == offsets(second.outcome.result())
    assert [1, 2] == offsets(third.outcome.result())


async def test_receive_whose_caller_has_run_keeps_its_elements() -> None:
    requests, (first, second, third) = await served(received(0), received(1), received(2))
    requests.note_received(first)
    assert [2] == offsets(requests.give_back(second))
    assert [0] == offsets(first.outcome.result())
    assert [1] == offsets(third.outcome.result())


async def test_receive_without_elements_has_none_to_give_back() -> None:
    requests = ReceiveRequests()
    waiting, failed = requests.add(1), requests.add(1)
    assert [] == requests.give_back(waiting)
    waiting.outcome.cancel()
    requests.fail(ValueError("x"))
    assert [] == requests.give_back(failed)
    with pytest.raises(ValueError, match="x"):
        failed.outcome.result()
