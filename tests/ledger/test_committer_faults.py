"""A fault in a callback of the committer closes its submitter, and nothing else."""

import asyncio

import pytest

from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.engine.memory import MemoryEngine
from kledger.ledger.errors import Fenced, LedgerError
from kledger.ledger.testing import FaultyEngine
from tests.contained import Contained
from tests.ledger.committer_bench import IN_MEMORY, Recorder, bench


@pytest.mark.parametrize("fault_in", ["confirm", "group_confirmed"])
async def test_a_submitter_that_raises_closes_alone_and_others_are_confirmed(
    fault_in: str, contained: Contained
) -> None:
    async with bench(MemoryEngine(), on_loop_bytes_max=IN_MEMORY) as on:
        broken, other = Recorder(on.committer, "broken"), Recorder(on.committer, "other", 2)
        broken.fault_in = fault_in
        broken.append()
        other.append()
        await on.committer.flush()
        other.append()
        await on.committer.flush()
        assert f"closed: a fault in {fault_in}" in broken.calls
        assert ["confirm 0", "group_confirmed", "confirm 1", "group_confirmed"] == other.calls
        assert ["a fault here closes partition broken"] == contained.messages
        assert [] == on.fatal


@pytest.mark.parametrize("fault_in", ["revert", "fail", "resume"])
async def test_a_submitter_that_raises_when_a_write_failed_closes_alone(
    fault_in: str, contained: Contained
) -> None:
    """Regression: a submitter that failed to revert hid the failed writes from all others."""
    engine = FaultyEngine(None)
    async with bench(engine) as on:
        broken, other = Recorder(on.committer, "broken"), Recorder(on.committer, "other", 2)
        broken.fault_in = fault_in
        drained: list[int] = []
        on.committer.on_drained(lambda: drained.append(1))
        engine.fail_next("commit", StorageWriteFailed("no"))
        broken.append()
        other.append()
        await on.committer.flush()
        assert f"closed: a fault in {fault_in}" in broken.calls
        assert ["revert", "fail 0 StorageFailed", "resume"] == other.calls
        other.append()
        await on.committer.flush()
        assert ["confirm 1", "group_confirmed"] == other.calls[3:]
        assert ([], [1]) == (on.fatal, drained)
    assert ["a fault here closes partition broken"] == contained.messages


async def test_a_drained_callback_that_raises_does_not_stop_the_others(
    contained: Contained,
) -> None:
    engine, results = FaultyEngine(None), list[int]()
    async with bench(engine, queue_count_max=1) as on:

        def fails() -> None:
            raise RuntimeError("broken")

        hold = engine.hold_next("commit")
        Recorder(on.committer).append()
        await hold.reached()
        on.committer.on_drained(fails)
        on.committer.on_drained(lambda: results.append(1))
        hold.release()
        await on.committer.flush()
        await asyncio.sleep(0)
        assert ([1], []) == (results, on.fatal)
    assert ["broken"] == [str(error) for error in contained.errors]


async def test_work_on_space_that_raises_stops_no_later_group(contained: Contained) -> None:
    async with bench(MemoryEngine(), on_loop_bytes_max=IN_MEMORY) as on:

        def fails() -> None:
            raise RuntimeError("broken")

        on.committer.on_space = fails
        recorder = Recorder(on.committer)
        for _ in range(2):
            recorder.append()
            on.committer.submit_rows([], lambda error: None, drops=[7])
            await on.committer.flush()
        assert ["confirm 0", "group_confirmed", "confirm 1", "group_confirmed"] == recorder.calls
        assert [] == on.fatal
    assert 2 == len(contained.messages)


async def test_a_group_that_cannot_be_started_stops_for_good(
    monkeypatch: pytest.MonkeyPatch, contained: Contained
) -> None:
    """Regression: its operations were taken from the queue and never completed."""
    engine, errors = MemoryEngine(), list[LedgerError | None]()
    async with bench(engine) as on:

        def no_thread(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(on.committer._thread, "submit", no_thread)
        on.committer.submit_rows([(b"k", b"v")], errors.append)
        await asyncio.sleep(0)
        assert "can't start new thread" in str(on.committer.fatal)
        assert [Fenced] == [type(error) for error in errors]
    assert [] == contained.messages
