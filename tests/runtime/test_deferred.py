"""A result that may come later: one listener, awaiting, mapping."""

import asyncio
import gc
import weakref

import pytest

from kledger.runtime.deferred import Deferred


def test_listener_is_called_once() -> None:
    deferred, results = Deferred[str](), list[str]()
    deferred.when_resolved(lambda: results.append(deferred.result()))
    assert (False, []) == (deferred.is_resolved, results)

    deferred.resolve("there")

    assert (True, ["there"]) == (deferred.is_resolved, results)
    with pytest.raises(AssertionError, match="resolved twice"):
        deferred.resolve("again")


def test_mapping_runs_when_the_result_is_read() -> None:
    deferred = Deferred[int]()
    made = deferred.mapped(lambda number: 10 // number)

    deferred.resolve(0)

    with pytest.raises(ZeroDivisionError):
        made.result()


def test_one_listener_and_one_mapping_are_the_limit() -> None:
    deferred = Deferred[int]()
    deferred.when_resolved(lambda: None)
    deferred.mapped(str)

    with pytest.raises(AssertionError, match="has a listener"):
        deferred.when_resolved(lambda: None)
    with pytest.raises(AssertionError, match="mapped twice"):
        deferred.mapped(str)
    with pytest.raises(AssertionError, match="not resolved yet"):
        deferred.result()


def test_resolved_result_and_its_listener_form_no_cycle() -> None:
    class Listener:
        def __init__(self) -> None:
            self.deferred = Deferred[str]()
            self.deferred.when_resolved(self.resolved)

        def resolved(self) -> None:
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


async def test_resolved_result_is_awaited_without_a_tick() -> None:
    with pytest.raises(StopIteration) as ended:
        next(Deferred.resolved("there").mapped(str.upper).__await__())

    assert ended.value.value == "THERE"


async def test_coroutine_continues_with_the_result() -> None:
    deferred = Deferred[int]()
    waiting = asyncio.ensure_future(deferred.mapped(str))
    await asyncio.sleep(0)

    deferred.resolve(7)

    assert await waiting == "7"


async def test_cancelling_is_reported_only_before_the_result() -> None:
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
