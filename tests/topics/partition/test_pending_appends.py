"""Appends on their way: everybody hears once, also when a fault closes the partition over them."""

import asyncio

import pytest

from kledger.ledger.testing import FaultyEngine
from kledger.topics.errors import TopicStorageFailed
from tests.batches.words import batch
from tests.contained import Contained
from tests.topics.words import house, outcome, submit


@pytest.mark.parametrize("method", ["confirm", "fail_from"])
async def test_fault_tells_all_who_wait_an_error_those_of_a_duplicate_too(
    method: str, monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """The first was told nothing, and neither was anybody behind it."""
    engine = FaultyEngine(None)
    async with house(engine) as here:
        log = await here.log()
        hold = engine.hold_next("commit")
        same = batch("same", producer=9, epoch=0, sequence=0)
        waiting = [submit(log, each) for each in (same, bytearray(same), batch("other"))]
        await hold.reached()

        def fails(*_: object) -> None:
            raise RuntimeError("injected")

        monkeypatch.setattr(
            f"kledger.topics.partition.partition_state.PartitionState.{method}", fails
        )
        if method == "confirm":
            hold.release()
        else:
            hold.fail()
        answers = await asyncio.gather(*waiting)
        assert [TopicStorageFailed] * 3 == [outcome(each) for each in answers]
        assert {"orders-0 was closed after a fault"} == {str(each.error) for each in answers}
        assert log.is_closed
    assert ["a fault here closes partition orders-0"] == contained.messages[:1]


async def test_caller_that_raises_closes_the_partition_and_others_still_hear(
    contained: Contained,
) -> None:
    async with house() as here:
        log = await here.log()
        topic = here.registry.get("orders")
        assert topic is not None

        def fails(_: object) -> None:
            raise RuntimeError("injected")

        log.append_nowait(memoryview(batch("first")), fails)
        answer = await submit(log, batch("second"))
        assert TopicStorageFailed is outcome(answer)
        again = await topic.open_partition(0)
        assert 2 == again.high_watermark
    assert 1 <= len(contained.messages)


async def test_append_that_fails_behind_the_ledger_closes_the_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was stored and waited for by nobody: the next one would have got its offset."""
    async with house() as here:
        log = await here.log()

        def fails(*_: object) -> None:
            raise RuntimeError("injected")

        with monkeypatch.context() as patch:
            patch.setattr(type(log.managed_ledger), "_roll_or_mark", fails)
            with pytest.raises(RuntimeError):
                log.append_nowait(memoryview(batch("first")), lambda _: None)
        assert log.is_closed
        topic = here.registry.all()[0]
        again = await topic.open_partition(0)
        answer = await submit(again, batch("second"))
        assert (1, 2) == (outcome(answer), again.high_watermark)
