"""The offset store over a real ledger store."""

import asyncio
import uuid

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kledger.ledger import LedgerError, LedgerStore, StoreConfig
from kledger.ledger.record_table import submit_together
from kledger.ledger.testing import FaultyEngine
from kledger.offsets import NO_EXPIRY, CommittedOffset, ExpiryRule, OffsetStore, TopicPartition
from kledger.offsets.records import encode_pending_key
from kledger.runtime.deferred import Deferred

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
SETTINGS = StoreConfig(durability="os")


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, 3, "note", 1, NO_EXPIRY, uuid.UUID(int=9))


def opened(store: LedgerStore) -> OffsetStore:
    offsets = OffsetStore(store)
    offsets.load()
    return offsets


async def test_offsets_survive_a_restart() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = opened(store)
        writes = [
            offsets.commit("g", {T0: at(1), T1: at(2)}),
            offsets.commit("g", {T0: at(3)}),
            submit_together(offsets.deletion("g", [T1])),
        ]
        assert offsets.committed("g", T0) is None
        assert [None] * 3 == [await each for each in writes]
        assert {T0: at(3)} == offsets.all_committed("g")

    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        assert {T0: at(3)} == opened(store).all_committed("g")


async def test_commits_under_way_are_known() -> None:
    async with LedgerStore.open(None, config=SETTINGS) as store:
        offsets = opened(store)
        writes = [offsets.commit("g", {T0: at(1)}), offsets.commit("g", {T1: at(2)})]
        assert (True, False) == (offsets.is_writing("g"), offsets.is_writing("h"))
        assert (set(), {T0, T1}) == (
            set(offsets.all_committed("g")),
            offsets.topic_partitions("g"),
        )
        assert [None, None] == [await each for each in writes]
        assert (False, {T0, T1}) == (offsets.is_writing("g"), offsets.topic_partitions("g"))


async def test_the_owner_is_called_when_offsets_hold_and_when_they_are_loaded() -> None:
    engine = FaultyEngine(None)
    replayed: list[tuple[str, bool]] = []

    def note(group: str) -> None:
        replayed.append((group, bool(offsets.all_committed(group))))

    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = OffsetStore(store, note)
        writes = [offsets.commit(group, {T0: at(1), T1: at(1)}) for group in "gh"]
        writes.append(submit_together(offsets.deletion("h", [T0, T1])))
        assert [] == replayed
        assert [None] * 3 == [await each for each in writes]
        assert [("g", True), ("h", True), ("h", False)] == replayed

    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        replayed.clear()
        offsets = OffsetStore(store, note)
        offsets.load()
        assert [("g", True)] == replayed


async def test_a_deletion_behind_commits_and_ends_under_way_includes_them() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = opened(store)
        assert await offsets.add_pending(7, "g", {T1: at(5)}) is None
        writes = [
            submit_together(offsets.end(7, ["g"], is_commit=True)),
            offsets.commit("g", {T0: at(1)}),
        ]
        assert offsets.topic_partitions("g") == {T0, T1}
        writes.append(submit_together(offsets.deletion("g", offsets.topic_partitions("g"))))
        assert offsets.topic_partitions("g") == set()
        assert [None] * 3 == [await each for each in writes]
        assert {} == offsets.all_committed("g")

    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        assert {} == opened(store).all_committed("g")


async def test_a_topic_takes_its_offsets_along_but_not_those_of_its_successor() -> None:
    async with LedgerStore.open(None, config=SETTINGS) as store:
        offsets = opened(store)
        other = uuid.UUID(int=10)

        def at_other(offset: int) -> CommittedOffset:
            return at(offset)._replace(topic_id=other)

        assert await offsets.commit("g", {T0: at(1), T1: at(1)}) is None
        writes = [
            offsets.commit("g", {T1: at_other(2)}),
            offsets.commit("new", {T0: at(3)}),
            offsets.add_pending(7, "new", {T0: at_other(4), T1: at(5)}),
            offsets.commit("other", {T0: at_other(1)}),
        ]
        deletions = dict(offsets.deletions_of_topics({at(1).topic_id}))
        assert {"g", "new"} == deletions.keys()
        writes += [submit_together(each) for each in deletions.values()]
        assert [None] * 6 == [await each for each in writes]
        assert [{T1: 2}, {}, {T0: 1}] == [
            {each: found.offset for each, found in offsets.all_committed(group).items()}
            for group in ("g", "new", "other")
        ]
        assert [True, False] == [offsets.has_pending("new", each) for each in (T0, T1)]
        assert [] == list(offsets.deletions_of_topics({at(1).topic_id}))


async def test_failed_commit_changes_nothing_in_memory() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = opened(store)
        engine.fail_next("commit")
        assert isinstance(await offsets.commit("g", {T0: at(1)}), LedgerError)
        assert offsets.committed("g", T0) is None
        assert (False, set()) == (offsets.is_writing("g"), offsets.topic_partitions("g"))


async def test_closed_store_fails_the_caller_at_once() -> None:
    async with LedgerStore.open(None, config=SETTINGS) as store:
        offsets = opened(store)
        assert await offsets.commit("g", {T0: at(1)}) is None

    writes = [offsets.commit("g", {T0: at(2)}), submit_together(offsets.deletion("g", [T0]))]

    assert all(isinstance(each.result(), LedgerError) for each in writes)
    assert (False, at(1)) == (offsets.is_writing("g"), offsets.committed("g", T0))


async def test_pending_offsets_survive_a_restart_and_end_as_decided() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = opened(store)
        writes = [
            offsets.commit("g", {T0: at(1)}),
            offsets.add_pending(7, "g", {T0: at(5)}),
            offsets.add_pending(8, "g", {T1: at(6)}),
        ]
        assert [None] * 3 == [await each for each in writes]
        assert at(1) == offsets.committed("g", T0)

    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = opened(store)
        assert [True, True] == [offsets.has_pending("g", each) for each in (T0, T1)]
        before = engine.calls["commit"]
        assert await submit_together(offsets.end(7, ["g"], is_commit=True)) is None
        assert 1 == engine.calls["commit"] - before
        assert await submit_together(offsets.end(8, ["g"], is_commit=False)) is None
        assert {T0: at(5)} == offsets.all_committed("g")

    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = opened(store)
        assert {T0: at(5)} == offsets.all_committed("g")
        assert not offsets.is_unstable("g")
        assert [[], []] == [offsets.end(each, ["g"], is_commit=True) for each in (7, 8)]


async def test_pending_offsets_that_were_not_stored_are_not_there() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = opened(store)
        engine.fail_next("commit")
        assert isinstance(await offsets.add_pending(7, "g", {T0: at(5)}), LedgerError)
        assert not offsets.is_unstable("g")
        assert [] == offsets.end(7, ["g"], is_commit=True)


async def test_an_end_that_was_not_stored_leaves_what_was_pending() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, config=SETTINGS, engine=engine) as store:
        offsets = opened(store)
        assert await offsets.add_pending(7, "g", {T0: at(5)}) is None
        engine.fail_next("commit")
        assert isinstance(await submit_together(offsets.end(7, ["g"], is_commit=True)), LedgerError)
        assert (None, True) == (offsets.committed("g", T0), offsets.has_pending("g", T0))
        assert await submit_together(offsets.end(7, ["g"], is_commit=True)) is None
        assert (at(5), False) == (offsets.committed("g", T0), offsets.has_pending("g", T0))


async def test_offsets_of_some_groups_are_forgotten_and_loaded_again() -> None:
    async with LedgerStore.open(None, config=SETTINGS) as store:
        offsets = opened(store)
        for group in ("g", "h"):
            assert await offsets.commit(group, {T0: at(1)}) is None
            assert await offsets.add_pending(7, group, {T1: at(5)}) is None
        offsets.unload(lambda group: group == "g")
        assert [{}, {T0: at(1)}] == [offsets.all_committed(group) for group in ("g", "h")]
        assert [False, True] == [offsets.has_pending(group, T1) for group in ("g", "h")]
        assert [] == offsets.end(7, ["g"], is_commit=True)
        assert await submit_together(offsets.end(7, ["h"], is_commit=True)) is None

        offsets.load(offsets.read(lambda group: group == "g"))
        assert [True, False] == [offsets.has_pending(group, T1) for group in ("g", "h")]
        assert await submit_together(offsets.end(7, ["g", "h"], is_commit=True)) is None
        assert [{T0: at(1), T1: at(5)}] * 2 == [offsets.all_committed(each) for each in ("g", "h")]


async def test_lowest_offset_is_that_of_the_slowest_group_of_that_very_topic() -> None:
    async with LedgerStore.open(None, config=SETTINGS) as store:
        offsets, topic_id = opened(store), at(1).topic_id
        for group, committed in (
            ("g", {T0: at(7), T1: at(1)}),
            ("h", {T0: at(3), U0: at(2)}),
            ("i", {T1: at(9)}),
        ):
            assert await offsets.commit(group, committed) is None
        asked = [(T0, topic_id), (T1, topic_id), (U0, topic_id), (T0, uuid.UUID(int=2))]
        assert [3, 1, 2, None] == [
            offsets.lowest_committed(each.topic, topic_id, each.partition)
            for each, topic_id in asked
        ]
        assert await submit_together(offsets.deletion("h", [T0])) is None
        assert 7 == offsets.lowest_committed("t", topic_id, 0)


async def test_offsets_that_expire_are_neither_pending_nor_more_than_asked_for() -> None:
    async with LedgerStore.open(None, config=SETTINGS) as store:
        offsets = opened(store)
        assert await offsets.commit("g", {T0: at(1), T1: at(1), U0: at(1)}) is None
        assert await offsets.add_pending(7, "g", {T1: at(5)}) is None
        rule = ExpiryRule(now_ms=9_999, retention_ms=1)
        assert [[], [T0], [T0, U0]] == [offsets.expired("g", rule, each) for each in (0, 1, 9)]
        renewal = offsets.commit("g", {T0: at(2)._replace(commit_ms=9_999)})
        assert [U0] == offsets.expired("g", rule, 9)
        assert await renewal is None


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


def shown(
    store: LedgerStore, offsets: OffsetStore
) -> tuple[dict[TopicPartition, int], list[set[TopicPartition]]]:
    """Return committed offsets, and the partitions of those of both producers."""
    committed = {each: found.offset for each, found in offsets.all_committed("g").items()}
    pending = [
        {each for each in (T0, T1) if store.get_row(encode_pending_key("g", (producer_id, each)))}
        for producer_id in (7, 8)
    ]
    has_pending = {each for each in (T0, T1) if offsets.has_pending("g", each)}
    assert pending[0] | pending[1] == has_pending
    return committed, pending


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
            offsets, sent = opened(store), list[Deferred[Exception | None]]()
            in_transaction: set[int] = set()
            for what, place, producer_id, waits in steps[number:]:
                number += 1
                if what == "restart":
                    break
                is_of_transaction = what in {"pending", "end", "abort"}
                if waits or (is_of_transaction and producer_id in in_transaction):
                    await _wait(sent)  # the steps of a transaction wait for one another
                    in_transaction.clear()
                sent.append(_step(offsets, model, (number, what, place, producer_id)))
                if is_of_transaction:
                    in_transaction.add(producer_id)
            await _wait(sent)
            expected = model.committed, [set(each) for each in model.pending.values()]
            assert expected == shown(store, offsets)
            assert expected == shown(store, opened(store))


async def _wait(sent: list[Deferred[Exception | None]]) -> None:
    assert [None] * len(sent) == [await each for each in sent]
    sent.clear()


def _step(
    offsets: OffsetStore, model: Model, step: tuple[int, str, TopicPartition, int]
) -> Deferred[Exception | None]:
    number, what, place, producer_id = step
    if what == "commit":
        model.commit(number, place)
        return offsets.commit("g", {place: at(number)})
    if what == "pending":
        model.add_pending(number, place, producer_id)
        return offsets.add_pending(producer_id, "g", {place: at(number)})
    if what == "delete":
        model.delete(place)
        changes = offsets.deletion("g", [place])
    else:
        model.end(producer_id, is_commit=what == "end")
        changes = offsets.end(producer_id, ["g"], is_commit=what == "end")
    return submit_together(changes) if changes else Deferred.resolved(None)


async def test_an_end_takes_offsets_that_are_still_being_written() -> None:
    """They were sent before the end, though the transaction has another coordinator."""
    async with LedgerStore.open(None, config=SETTINGS) as store:
        offsets = opened(store)
        adding = [
            offsets.add_pending(7, "g", {T0: at(5)}),
            offsets.add_pending(8, "h", {T0: at(6)}),
        ]
        assert {"g"} == offsets.groups_of(7)
        ending = submit_together(offsets.end(7, ["g"], is_commit=True))
        assert [None] * 3 == [await each for each in (*adding, ending)]
        assert (at(5), False) == (offsets.committed("g", T0), offsets.has_pending("g", T0))
        assert (set(), {"h"}) == (offsets.groups_of(7), offsets.groups_of(8))
