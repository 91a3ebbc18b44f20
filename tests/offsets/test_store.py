"""The offset store over a real ledger store."""

import asyncio
import uuid

from ledger import LedgerError, LedgerStore, StoreConfig
from ledger.testing import FaultyEngine
from offsets import NO_EXPIRY, CommittedOffset, OffsetStore, Place
from runtime.signal import Signal

T0, T1 = Place("t", 0), Place("t", 1)
SETTINGS = StoreConfig(durability="os")


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, 3, "note", 1, NO_EXPIRY, uuid.UUID(int=9))


class Done:
    """Collects the ends of writes."""

    def __init__(self) -> None:
        self.errors: list[LedgerError | None] = []
        self._signal = Signal()

    def __call__(self, error: LedgerError | None) -> None:
        self.errors.append(error)
        self._signal.notify()

    async def wait(self, count: int) -> None:
        while len(self.errors) < count:
            await self._signal.wait_beyond(self._signal.version)


async def test_offsets_survive_a_restart() -> None:
    engine = FaultyEngine(None)
    done = Done()
    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = OffsetStore.open(store)
        offsets.commit_nowait("g", [(T0, at(1)), (T1, at(2))], done)
        offsets.commit_nowait("g", [(T0, at(3))], done)
        offsets.delete_nowait("g", [T1], done, more_rows=[(b"other", b"row")])
        assert offsets.state.committed("g", T0) is None
        await done.wait(3)
        assert done.errors == [None, None, None]
        assert dict(offsets.state.all_committed("g")) == {T0: at(3)}

    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        assert dict(OffsetStore.open(store).state.all_committed("g")) == {T0: at(3)}
        assert store.get_row(b"other") == b"row"


async def test_commits_on_their_way_are_known() -> None:
    async with LedgerStore.open(None, config=SETTINGS) as store:
        offsets = OffsetStore.open(store)
        done = Done()
        offsets.commit_nowait("g", [(T0, at(1))], done)
        offsets.commit_nowait("g", [(T1, at(2))], done)
        assert offsets.is_committing("g")
        assert offsets.places("g") == {T0, T1}
        await done.wait(2)
        assert not offsets.is_committing("g")
        assert offsets.places("g") == {T0, T1}


async def test_a_deletion_behind_commits_and_ends_on_their_way_takes_them_along() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = OffsetStore.open(store)
        done = Done()
        offsets.add_pending_nowait(7, "g", {T1: at(5)}, done)
        await done.wait(1)
        ended = asyncio.ensure_future(store.put_rows(offsets.rows_of_end(7, is_commit=True)))
        await asyncio.sleep(0)
        offsets.commit_nowait("g", [(T0, at(1))], done)
        assert offsets.places("g") == {T0, T1}
        offsets.delete_nowait("g", offsets.places("g"), done)
        await ended
        offsets.ended(7, is_commit=True)
        await done.wait(3)

    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        assert {} == OffsetStore.open(store).state.all_committed("g")


async def test_the_topic_of_a_place_is_that_of_the_last_commit_on_its_way() -> None:
    async with LedgerStore.open(None, config=SETTINGS) as store:
        offsets = OffsetStore.open(store)
        done = Done()
        topic_id, other = at(1).topic_id, uuid.UUID(int=10)
        offsets.commit_nowait("g", [(T0, at(1)), (T1, at(1))], done)
        await done.wait(1)
        offsets.commit_nowait("g", [(T1, at(2)._replace(topic_id=other))], done)
        offsets.commit_nowait("new", [(T0, at(3))], done)
        assert {"g": [T0], "new": [T0]} == offsets.places_of_topic(topic_id)
        assert {"g": [T1]} == offsets.places_of_topic(other)
        await done.wait(3)
        assert {"g": [T1]} == offsets.places_of_topic(other)


async def test_failed_commit_changes_nothing_in_memory() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = OffsetStore.open(store)
        done = Done()
        engine.fail_next("commit")
        offsets.commit_nowait("g", [(T0, at(1))], done)
        await done.wait(1)

        assert done.errors[0] is not None
        assert offsets.state.committed("g", T0) is None
        assert not offsets.is_committing("g")


async def test_closed_store_fails_the_caller_at_once() -> None:
    async with LedgerStore.open(None, config=SETTINGS) as store:
        offsets = OffsetStore.open(store)
    done = Done()

    offsets.commit_nowait("g", [(T0, at(1))], done)
    offsets.delete_nowait("g", [T0], done)

    assert len(done.errors) == 2
    assert all(isinstance(error, LedgerError) for error in done.errors)
    assert not offsets.is_committing("g")


async def test_pending_offsets_survive_a_restart_and_end_as_decided() -> None:
    engine = FaultyEngine(None)
    done = Done()
    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = OffsetStore.open(store)
        offsets.commit_nowait("g", [(T0, at(1))], done)
        offsets.add_pending_nowait(7, "g", {T0: at(5)}, done)
        offsets.add_pending_nowait(8, "g", {T1: at(6)}, done)
        await done.wait(3)
        assert at(1) == offsets.state.committed("g", T0)

    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = OffsetStore.open(store)
        assert {"g": {T0: at(5)}} == offsets.state.pending(7)
        for producer_id, is_commit in ((7, True), (8, False)):
            await store.put_rows(offsets.rows_of_end(producer_id, is_commit=is_commit))
            assert ["g"] == offsets.ended(producer_id, is_commit=is_commit)
        assert {T0: at(5)} == dict(offsets.state.all_committed("g"))

    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = OffsetStore.open(store)
        assert {T0: at(5)} == dict(offsets.state.all_committed("g"))
        assert ({}, {}) == (offsets.state.pending(7), offsets.state.pending(8))


async def test_pending_offsets_that_were_not_stored_are_not_there() -> None:
    engine = FaultyEngine(None)
    done = Done()
    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = OffsetStore.open(store)
        engine.fail_next("commit")
        offsets.add_pending_nowait(7, "g", {T0: at(5)}, done)
        await done.wait(1)
        assert done.errors[0] is not None
        assert {} == offsets.state.pending(7)
