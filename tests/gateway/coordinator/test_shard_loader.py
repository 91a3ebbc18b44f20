"""Shards are attached when they are loaded, and detached when nothing of them is under way."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from kledger.gateway.coordinator.coordinator_shards_state import CoordinatorShards, Includes
from kledger.gateway.coordinator.shard_loader import ShardLoader
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerStore, UnreadableRow
from tests.gateway.coordinator.shell_words import settle

KEYS = {number: text for text, number in (("a", 1), ("b", 2), ("c", 3), ("d", 0))}
NONE, LOADING = ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
DETACHED = ErrorCode.NOT_COORDINATOR


class RecordsOfTest:
    """Notes what the loader does with which keys."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.read_error: Exception | None = None
        self.begin_error: Exception | None = None
        self.settled = asyncio.Event()
        self.settled.set()

    def load_shards(self) -> None:
        self.calls.append("load all")

    def read_shards(self, is_included: Includes) -> Callable[[], None]:
        self._note("read", is_included)
        if self.read_error is not None:
            raise self.read_error
        return lambda: self._begin(is_included)

    def _begin(self, is_included: Includes) -> None:
        self._note("begin", is_included)
        if self.begin_error is not None:
            raise self.begin_error

    def stop_shards(self, is_included: Includes) -> None:
        self._note("stop", is_included)

    async def settle_shards(self, is_included: Includes) -> None:
        self._note("settle", is_included)
        await self.settled.wait()

    def unload_shards(self, is_included: Includes) -> None:
        self._note("unload", is_included)

    def _note(self, what: str, is_included: Includes) -> None:
        self.calls.append(f"{what} {''.join(filter(is_included, 'abcd'))}")


class Stage:
    """A loader of four shards, all attached."""

    def __init__(self, store: LedgerStore) -> None:
        self.shards = CoordinatorShards(4)
        self.records = RecordsOfTest()
        self.loader = ShardLoader(self.shards, store, self.records)
        self.loader.attach_at_start(self.shards.all_numbers())

    def errors(self) -> list[ErrorCode]:
        return [self.shards.error(KEYS[number]) for number in range(4)]

    def calls(self) -> list[str]:
        calls, self.records.calls = self.records.calls, []
        return calls


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with LedgerStore.open(None) as store:
        yield Stage(store)


async def test_a_start_loads_all_shards_at_once(stage: Stage) -> None:
    assert (["load all"], [NONE] * 4) == (stage.calls(), stage.errors())


async def test_shards_are_refused_before_they_settle_and_loaded_before_they_are_served(
    stage: Stage,
) -> None:
    stage.calls()
    await stage.loader.detach([1, 2])
    assert ["stop ab", "settle ab", "unload ab"] == stage.calls()
    assert [NONE, DETACHED, DETACHED, NONE] == stage.errors()
    await stage.loader.attach([0, 1])
    assert ["read a", "begin a"] == stage.calls(), "an attached shard is not loaded again"
    assert [NONE, NONE, DETACHED, NONE] == stage.errors()
    await stage.loader.detach([2])
    assert [] == stage.calls(), "a detached shard is not detached again"


async def test_a_shard_is_not_attached_while_its_writes_are_under_way(stage: Stage) -> None:
    stage.records.settled.clear()
    stage.calls()
    detaching = asyncio.ensure_future(stage.loader.detach([1]))
    attaching = asyncio.ensure_future(stage.loader.attach([1]))
    await settle()
    assert ["stop a", "settle a"] == stage.calls()
    assert DETACHED == stage.shards.error("a")
    stage.records.settled.set()
    await asyncio.gather(detaching, attaching)
    assert ["unload a", "read a", "begin a"] == stage.calls()
    assert NONE == stage.shards.error("a")


async def test_a_cancelled_detach_is_completed_by_the_next_move(stage: Stage) -> None:
    stage.records.settled.clear()
    detaching = asyncio.ensure_future(stage.loader.detach([1]))
    await settle()
    detaching.cancel()
    await settle()
    assert DETACHED == stage.shards.error("a")
    stage.records.settled.set()
    stage.calls()
    await stage.loader.attach([1])
    assert ["settle a", "unload a", "read a", "begin a"] == stage.calls()


@pytest.mark.parametrize("moment", ["read", "begin"])
async def test_shards_that_cannot_be_loaded_stay_detached(stage: Stage, moment: str) -> None:
    await stage.loader.detach([1, 2])
    stage.calls()
    setattr(stage.records, f"{moment}_error", UnreadableRow("row of a"))
    with pytest.raises(UnreadableRow, match="row of a"):
        await stage.loader.attach([1, 2])
    assert [NONE, DETACHED, DETACHED, NONE] == stage.errors()
    assert "stop ab" == stage.calls()[-1], "what has begun is stopped"
    setattr(stage.records, f"{moment}_error", None)
    await stage.loader.attach([1, 2])
    assert ["settle ab", "unload ab", "read ab", "begin ab"] == stage.calls()
    assert [NONE] * 4 == stage.errors()


async def test_a_cancelled_attach_leaves_its_shards_detached(stage: Stage) -> None:
    await stage.loader.detach([1])
    attaching = asyncio.ensure_future(stage.loader.attach([1]))
    await asyncio.sleep(0)
    assert LOADING == stage.shards.error("a")
    attaching.cancel()
    await asyncio.gather(attaching, return_exceptions=True)
    assert DETACHED == stage.shards.error("a")
    await stage.loader.attach([1])
    assert NONE == stage.shards.error("a")


async def test_nothing_is_attached_after_the_end(stage: Stage) -> None:
    await stage.loader.detach([1, 2])
    reading = asyncio.ensure_future(stage.loader.attach([1]))
    await asyncio.sleep(0)
    stage.loader.close()
    await reading
    await stage.loader.attach([2])
    assert [DETACHED] * 2 == [stage.shards.error(key) for key in "ab"]
    assert not any(call.startswith("begin") for call in stage.calls())


async def test_a_shard_that_does_not_exist_is_an_error(stage: Stage) -> None:
    for move in (stage.loader.attach, stage.loader.detach):
        with pytest.raises(ValueError, match="shard 4: expected 0 to 3"):
            await move([0, 4])
    assert [NONE] * 4 == stage.errors()
