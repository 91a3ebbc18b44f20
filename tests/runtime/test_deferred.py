"""A result that may come later: heard once, awaited, made into another one."""

import asyncio
import gc
import weakref

import pytest

from kledger.runtime.deferred import Deferred


def test_listener_hears_once_of_the_result() -> None:
    deferred, heard = Deferred[str](), list[str]()
    deferred.when_resolved(lambda: heard.append(deferred.result()))
    assert (False, []) == (deferred.is_resolved, heard)

    deferred.resolve("there")

    assert (True, ["there"]) == (deferred.is_resolved, heard)
    with pytest.raises(AssertionError, match="settled twice"):
        deferred.resolve("again")


def test_what_is_made_of_the_result_is_made_when_it_is_asked_for() -> None:
    deferred = Deferred[int]()
    made = deferred.mapped(lambda number: 10 // number)

    deferred.resolve(0)

    with pytest.raises(ZeroDivisionError):
        made.result()


def test_one_listener_and_one_mapping_are_the_limit() -> None:
    deferred = Deferred[int]()
    deferred.when_resolved(lambda: None)
    deferred.mapped(str)

    with pytest.raises(AssertionError, match="somebody listens"):
        deferred.when_resolved(lambda: None)
    with pytest.raises(AssertionError, match="mapped twice"):
        deferred.mapped(str)
    with pytest.raises(AssertionError, match="not there yet"):
        deferred.result()


def test_settled_result_and_its_listener_leave_nothing_to_the_collector() -> None:
    class Listener:
        def __init__(self) -> None:
            self.deferred = Deferred[str]()
            self.deferred.when_resolved(self.heard)

        def heard(self) -> None:
            pass

    listener = Listener()
    gone = weakref.ref(listener)
    gc.disable()
    try:
        listener.deferred.resolve("there")
        del listener
        assert gone() is None
    finally:
        gc.enable()


async def test_result_that_is_there_is_awaited_without_a_turn_of_the_loop() -> None:
    with pytest.raises(StopIteration) as ended:
        next(Deferred.resolved("there").mapped(str.upper).__await__())

    assert ended.value.value == "THERE"


async def test_coroutine_goes_on_with_the_result() -> None:
    deferred = Deferred[int]()
    waiting = asyncio.ensure_future(deferred.mapped(str))
    await asyncio.sleep(0)

    deferred.resolve(7)

    assert await waiting == "7"


async def test_abandoned_only_while_the_result_is_not_there() -> None:
    abandoned = list[str]()
    for name, is_settled_first in (("early", False), ("late", True)):
        deferred = Deferred[str]()
        deferred.on_cancelled = lambda name=name: abandoned.append(name)
        waiting = asyncio.ensure_future(deferred)
        await asyncio.sleep(0)
        if is_settled_first:
            deferred.resolve("there")
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()

    assert abandoned == ["early"]
