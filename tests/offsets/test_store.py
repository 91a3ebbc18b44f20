"""The offset store over a real ledger store."""

import asyncio
import uuid

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kledger.ledger import LedgerError, LedgerStore, StoreConfig
from kledger.ledger.testing import FaultyEngine
from kledger.offsets import NO_EXPIRY, CommittedOffset, OffsetsState, OffsetStore, TopicPartition
from kledger.runtime.signal import Signal

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
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
        assert offsets.topic_partitions("g") == {T0, T1}
        await done.wait(2)
        assert not offsets.is_committing("g")
        assert offsets.topic_partitions("g") == {T0, T1}


async def test_a_deletion_behind_commits_and_ends_on_their_way_takes_them_along() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = OffsetStore.open(store)
        done = Done()
        offsets.add_pending_nowait(7, "g", {T1: at(5)}, done)
        await done.wait(1)
        offsets.end_nowait(7, done, is_commit=True)
        offsets.commit_nowait("g", [(T0, at(1))], done)
        assert offsets.topic_partitions("g") == {T0, T1}
        offsets.delete_nowait("g", offsets.topic_partitions("g"), done)
        await done.wait(4)

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
        assert {"g": [T0], "new": [T0]} == offsets.topic_partitions_of({topic_id})
        assert {"g": [T1]} == offsets.topic_partitions_of({other})
        await done.wait(3)
        assert {"g": [T1]} == offsets.topic_partitions_of({other})


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
            offsets.end_nowait(producer_id, done, is_commit=is_commit, more_rows=[(b"end", b"row")])
        await done.wait(5)
        assert store.get_row(b"end") == b"row"
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


class Model:
    """What holds, by the order in which it was sent, as plain as can be."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, int] = {}
        self.pending: dict[int, dict[TopicPartition, int]] = {7: {}, 8: {}}

    def commit(self, number: int, place: TopicPartition) -> None:
        self.committed[place] = number

    def add_pending(self, number: int, place: TopicPartition, producer_id: int) -> None:
        self.pending[producer_id][place] = number

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        for place, sent in self.pending[producer_id].items():
            if is_commit and self.committed.get(place, 0) < sent:
                self.committed[place] = sent
        self.pending[producer_id] = {}

    def delete(self, place: TopicPartition) -> None:
        for topic_partitions in (self.committed, *self.pending.values()):
            topic_partitions.pop(place, None)


def shown(state: OffsetsState) -> tuple[dict[TopicPartition, int], list[dict[TopicPartition, int]]]:
    """Give committed offsets, and those of both producers."""
    pending = [state.pending(producer_id).get("g", {}) for producer_id in (7, 8)]
    kinds = [state.all_committed("g"), *pending]
    committed, *rest = [{place: each.offset for place, each in kind.items()} for kind in kinds]
    return committed, rest


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["commit", "pending", "end", "abort", "delete", "restart"]),
        st.sampled_from([T0, T1]),
        st.sampled_from([7, 8]),
        st.booleans(),
    ),
    max_size=12,
)


@given(STEPS)
@settings(max_examples=60)
@example([("pending", T0, 7, True), ("commit", T0, 7, True), ("end", T0, 7, True)])
@example([("pending", T0, 7, True), ("pending", T0, 8, True), ("end", T0, 8, False),
          ("end", T0, 7, True)])  # fmt: skip
@example([("pending", T0, 7, True), ("commit", T1, 7, True), ("delete", T0, 7, False),
          ("end", T0, 7, False)])  # fmt: skip
@example([("pending", T0, 7, True), ("delete", T1, 7, True), ("commit", T0, 7, False),
          ("end", T0, 7, False)])  # fmt: skip
def test_what_was_sent_last_holds(steps: list[tuple[str, TopicPartition, int, bool]]) -> None:
    """In memory and after a restart alike, whatever else is on its way meanwhile."""
    asyncio.run(_play(steps))


async def _play(steps: list[tuple[str, TopicPartition, int, bool]]) -> None:
    model, engine = Model(), FaultyEngine(None)
    number = 0
    while number < len(steps):
        async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
            offsets, done, sent = OffsetStore.open(store), Done(), 0
            in_transaction: set[int] = set()
            for what, place, producer_id, waits in steps[number:]:
                number += 1
                if what == "restart":
                    break
                is_of_transaction = what in {"pending", "end", "abort"}
                if waits or (is_of_transaction and producer_id in in_transaction):
                    await done.wait(sent)  # the steps of a transaction wait for one another
                    in_transaction.clear()
                _step(offsets, model, (number, what, place, producer_id), done)
                sent += 1
                if is_of_transaction:
                    in_transaction.add(producer_id)
            await done.wait(sent)
            assert done.errors == [None] * sent
            expected = model.committed, list(model.pending.values())
            assert expected == shown(offsets.state)
            assert expected == shown(OffsetStore.open(store).state)


def _step(
    offsets: OffsetStore, model: Model, step: tuple[int, str, TopicPartition, int], done: Done
) -> None:
    number, what, place, producer_id = step
    if what == "commit":
        offsets.commit_nowait("g", [(place, at(number))], done)
        model.commit(number, place)
    elif what == "pending":
        offsets.add_pending_nowait(producer_id, "g", {place: at(number)}, done)
        model.add_pending(number, place, producer_id)
    elif what == "delete":
        offsets.delete_nowait("g", [place], done)
        model.delete(place)
    else:
        offsets.end_nowait(producer_id, done, is_commit=what == "end")
        model.end(producer_id, is_commit=what == "end")
