"""Groups under joins, silence, seeks, failed writes and power cuts: see `storm`."""

import pytest

from kledger.ledger.testing import FaultyEngine
from tests.named_topics.storm import Storm

LIVES = 3
STEPS = 150


async def run_storm(seed: int) -> None:
    engine = FaultyEngine(None)
    storm = Storm(engine, seed, is_retaining=bool(seed % 2))
    for _ in range(LIVES):
        await storm.live(STEPS)
    rest = await storm.drain()
    assert [list(range(*each)) for each in zip(storm.next_offsets, storm.ends, strict=True)] == rest
    assert {"publish", "join", "leave", "poll", "commit", "seek", "break"} <= storm.steps


@pytest.mark.parametrize("seed", range(8))
async def test_nothing_committed_comes_again_and_nothing_else_is_lost(seed: int) -> None:
    await run_storm(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
async def test_many_storms(seed: int) -> None:
    await run_storm(seed)
