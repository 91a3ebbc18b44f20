"""Opening a link with retries and backoff."""

import asyncio

import pytest

from kledger.native.client.reconnect import is_final, open_with_retries
from kledger.native.errors import ConsumerBusy, KledgerError, TopicNotFound, Unavailable
from tests.native.client_builders import Rig, rig, ticks


class Opener:
    """Opens after so many failures."""

    def __init__(self, rig_: Rig, *failures: KledgerError) -> None:
        self._clock = rig_.clock
        self._failures = list(failures)
        self.times: list[int] = []

    async def open(self) -> str:
        self.times.append(self._clock.monotonic_ms())
        if self._failures:
            raise self._failures.pop(0)
        return "open"


async def test_pauses_grow_until_it_works() -> None:
    async with rig() as rig_:
        opener = Opener(rig_, *[Unavailable("away")] * 9)
        task = asyncio.ensure_future(open_with_retries(rig_.services, opener.open, is_first=False))
        while not task.done():
            await rig_.pass_ms(10)
        assert "open" == await task
        pauses = [
            after - before for before, after in zip(opener.times, opener.times[1:], strict=False)
        ]
        assert 50 <= pauses[0] <= 110
        assert 2_500 <= pauses[-1] <= 5_010
        assert sum(pauses) > 10_000


@pytest.mark.parametrize(
    ("is_first", "error"), [(True, Unavailable("x")), (False, TopicNotFound("x"))]
)
async def test_final_errors_are_raised_at_once(is_first: bool, error: KledgerError) -> None:
    async with rig() as rig_:
        with pytest.raises(type(error)):
            await open_with_retries(rig_.services, Opener(rig_, error).open, is_first=is_first)


async def test_retries_end() -> None:
    async with rig() as rig_:
        opener = Opener(rig_, *[Unavailable("away")] * 100)
        task = asyncio.ensure_future(
            open_with_retries(rig_.services, opener.open, is_first=False, retry_ms=1_000)
        )
        for _ in range(40):
            await rig_.pass_ms(100)
        with pytest.raises(Unavailable):
            await task


async def test_cancelling_ends_it() -> None:
    async with rig() as rig_:
        opener = Opener(rig_, Unavailable("away"))
        task = asyncio.ensure_future(open_with_retries(rig_.services, opener.open, is_first=False))
        await ticks()
        task.cancel()
        await rig_.pass_ms(1_000)
        assert 1 == len(opener.times)


def test_which_ends_are_final() -> None:
    assert [False, False, False, True] == [
        is_final(each) for each in (None, Unavailable("x"), ConsumerBusy("x"), TopicNotFound("x"))
    ]
