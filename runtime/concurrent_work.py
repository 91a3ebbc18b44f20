"""Concurrent work: two steps at the same time, which end together, or many, some at a time.

Rule: of two steps none is left running: if one step fails, or the caller is cancelled, the other
step is cancelled and awaited. Of many, no further ones begin once one has failed.
Must not know: what the steps do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NoReturn, TypeVar

Item = TypeVar("Item")
First = TypeVar("First")
Second = TypeVar("Second")
Result = TypeVar("Result")


async def run_both(
    first: Coroutine[Any, Any, First], second: Coroutine[Any, Any, Second]
) -> tuple[First, Second]:
    """Run two steps at the same time; return what both return, or raise what one raises.

    Unlike `asyncio.TaskGroup`, it raises the error itself, and it is cancelled whenever its caller
    was, whatever a step raises because of that.
    """
    loop = asyncio.get_running_loop()
    tasks = loop.create_task(first), loop.create_task(second)
    is_cancelled = False
    while running := [each for each in tasks if not each.done()]:
        try:
            await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
        except asyncio.CancelledError:
            is_cancelled = True
        if is_cancelled or any(each.done() and _has_failed(each) for each in tasks):
            for each in running:
                each.cancel()
    failed = [each for each in tasks if _has_failed(each)]
    if is_cancelled:
        raise asyncio.CancelledError
    for each in failed:
        if not each.cancelled():
            each.result()  # raises what has ended both
    return tasks[0].result(), tasks[1].result()


async def run_some_at_a_time(
    step: Callable[[Item], Awaitable[Result]], items: Sequence[Item], together_max: int
) -> list[Result]:
    """Run a step for each item, so many at the same time; return what they return, in order.

    Those of one time often share a commit. Raises what the first one raises that fails.
    """
    results: list[Result] = []
    for start in range(0, len(items), together_max):
        results += await asyncio.gather(*map(step, items[start : start + together_max]))
    return results


async def run_until(work: Awaitable[Result], end: Awaitable[Result]) -> Result:
    """Run `work` until it or `end` returns; return what the first of them returns.

    The other one is cancelled and awaited. If `work` raises on its way, that is raised.
    """
    try:
        await run_both(_raise_result(work), _raise_result(end))
    except _Returned as returned:
        return returned.result  # type: ignore[no-any-return]  # an exception has no type argument
    raise AssertionError("neither of them returns to here")


class _Returned(Exception):
    def __init__(self, result: Any) -> None:
        super().__init__(result)
        self.result = result


async def _raise_result(step: Awaitable[Any]) -> NoReturn:
    raise _Returned(await step)


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.cancelled() or task.exception() is not None
