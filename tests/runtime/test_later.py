"""A result that may come later: heard once, awaited, made into another one."""

import asyncio
import gc
import weakref

import pytest

from kledger.runtime.later import Later


def test_listener_hears_once_of_the_result() -> None:
    later, heard = Later[str](), list[str]()
    later.when_settled(lambda: heard.append(later.result()))
    assert (False, []) == (later.is_settled, heard)

    later.settle("there")

    assert (True, ["there"]) == (later.is_settled, heard)
    with pytest.raises(AssertionError, match="settled twice"):
        later.settle("again")


def test_what_is_made_of_the_result_is_made_when_it_is_asked_for() -> None:
    later = Later[int]()
    made = later.mapped(lambda number: 10 // number)

    later.settle(0)

    with pytest.raises(ZeroDivisionError):
        made.result()


def test_one_listener_and_one_mapping_are_the_limit() -> None:
    later = Later[int]()
    later.when_settled(lambda: None)
    later.mapped(str)

    with pytest.raises(AssertionError, match="somebody listens"):
        later.when_settled(lambda: None)
    with pytest.raises(AssertionError, match="mapped twice"):
        later.mapped(str)
    with pytest.raises(AssertionError, match="not there yet"):
        later.result()


def test_settled_result_and_its_listener_leave_nothing_to_the_collector() -> None:
    class Listener:
        def __init__(self) -> None:
            self.later = Later[str]()
            self.later.when_settled(self.heard)

        def heard(self) -> None:
            pass

    listener = Listener()
    gone = weakref.ref(listener)
    gc.disable()
    try:
        listener.later.settle("there")
        del listener
        assert gone() is None
    finally:
        gc.enable()


async def test_result_that_is_there_is_awaited_without_a_turn_of_the_loop() -> None:
    with pytest.raises(StopIteration) as ended:
        next(Later.at_once("there").mapped(str.upper).__await__())

    assert ended.value.value == "THERE"


async def test_coroutine_goes_on_with_the_result() -> None:
    later = Later[int]()
    waiting = asyncio.ensure_future(later.mapped(str))
    await asyncio.sleep(0)

    later.settle(7)

    assert await waiting == "7"


async def test_abandoned_only_while_the_result_is_not_there() -> None:
    abandoned = list[str]()
    for name, is_settled_first in (("early", False), ("late", True)):
        later = Later[str]()
        later.on_abandoned = lambda name=name: abandoned.append(name)
        waiting = asyncio.ensure_future(later)
        await asyncio.sleep(0)
        if is_settled_first:
            later.settle("there")
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()

    assert abandoned == ["early"]
