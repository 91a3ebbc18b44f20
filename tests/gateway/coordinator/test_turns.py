"""Turns: one at a time for each name, and nothing left of names that nobody uses."""

import asyncio

from gateway.coordinator.turns import Turns


async def test_one_at_a_time_in_the_order_of_coming() -> None:
    turns, seen = Turns(), list[str]()
    go_on = asyncio.Event()

    async def one(name: str, who: str) -> None:
        async with turns.take(name):
            seen.append(f"{who} in")
            await go_on.wait()
            seen.append(f"{who} out")

    tasks = [asyncio.ensure_future(one("a", who)) for who in ("first", "second")]
    tasks.append(asyncio.ensure_future(one("b", "other")))
    await asyncio.sleep(0)
    assert ["first in", "other in"] == seen
    go_on.set()
    await asyncio.gather(*tasks)
    assert ["first in", "first out", "second in", "second out"] == [
        each for each in seen if "other" not in each
    ]


async def test_a_name_is_there_for_as_long_as_somebody_is() -> None:
    turns = Turns()
    async with turns.take("a"):
        waiting = asyncio.ensure_future(_take(turns, "a"))
        await asyncio.sleep(0)
        assert (1, True, False) == (len(turns), "a" in turns, "b" in turns)
    assert "a" in turns, "one has left, the next has not come to it yet"
    await waiting
    assert 0 == len(turns)


async def test_who_gives_up_leaves_nothing() -> None:
    turns = Turns()
    async with turns.take("a"):
        waiting = asyncio.ensure_future(_take(turns, "a"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert 0 == len(turns)


async def _take(turns: Turns, name: str) -> None:
    async with turns.take(name):
        pass
