"""Which entries of a log with transactions are visible."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from kledger.delivery.read_committed_filter import ReadCommittedFilter
from kledger.ledger import EARLIEST, Entry, Position
from kledger.subscriptions.visibility_filter import Visibility
from kledger.topics.partition.partition_log import PartitionLog
from tests.batches.words import batch
from tests.delivery.transactions import Writer
from tests.topics.words import append, open_topics


class FilteredLog:
    """A log and what subscriptions see of it."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.visibility_filter = ReadCommittedFilter(log)
        self.one, self.two = Writer(log, 7), Writer(log, 8)

    async def plain(self, *values: str) -> Position:
        result = await append(self.log, batch(*values))
        assert result.position is not None
        return result.position

    async def entries(self) -> list[Entry]:
        return await self.log.managed_ledger.read_entries(EARLIEST, 999)

    async def visibility(self) -> Visibility:
        return self.visibility_filter.visibility_of(await self.entries())


@asynccontextmanager
async def filtered_log() -> AsyncIterator[FilteredLog]:
    async with open_topics() as opened:
        yield FilteredLog(await opened.log())


async def test_without_transactions_everything_is_visible() -> None:
    async with filtered_log() as filtered:
        assert Visibility(0, frozenset()) == await filtered.visibility()
        for values in ("ab", "c", "def"):
            await filtered.plain(*values)
        assert Visibility(3, frozenset()) == await filtered.visibility()


async def test_without_transactions_nothing_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with filtered_log() as filtered:
        await filtered.plain("a")
        monkeypatch.delattr(PartitionLog, "aborted_between")
        assert Visibility(1, frozenset()) == await filtered.visibility()


async def test_nothing_behind_an_open_transaction_is_settled() -> None:
    async with filtered_log() as filtered:
        await filtered.plain("a", "b")
        await filtered.one.write("c")
        await filtered.plain("d")
        await filtered.two.write("e")
        second = await filtered.two.end(commit=True)
        assert Visibility(1, frozenset()) == await filtered.visibility()
        first = await filtered.one.end(commit=True)
        assert Visibility(6, {first, second}) == await filtered.visibility()


async def test_aborted_batches_are_hidden_and_others_are_not() -> None:
    async with filtered_log() as filtered:
        await filtered.one.write("before")
        hidden = {await filtered.one.end(commit=True)}
        for _ in range(2):
            hidden.add(await filtered.one.write("a", "b"))
            await filtered.two.write("c", "d")
            await filtered.plain("e")
        hidden.add(await filtered.two.end(commit=True))
        hidden.add(await filtered.one.end(commit=False))
        await filtered.one.write("behind")
        hidden.add(await filtered.one.end(commit=True))
        assert Visibility(12, hidden) == await filtered.visibility()


async def test_entry_alone_has_the_same_visibility() -> None:
    """A cursor reads entries with gaps: it skips what is acknowledged."""
    async with filtered_log() as filtered:
        aborted = await filtered.one.write("a")
        await filtered.two.write("b")
        await filtered.one.end(commit=False)
        await filtered.two.end(commit=True)
        entries = await filtered.entries()
        assert Visibility(1, {aborted}) == filtered.visibility_filter.visibility_of(entries[:1])
        assert Visibility(1, frozenset()) == filtered.visibility_filter.visibility_of(entries[1:2])
        assert Visibility(
            2, {aborted, entries[3].position}
        ) == filtered.visibility_filter.visibility_of(entries[::3])


async def test_listeners_are_called_when_a_transaction_ends() -> None:
    async with filtered_log() as filtered:
        await filtered.one.write("a")
        entries, seen = await filtered.entries(), []

        def listener() -> None:
            seen.append(filtered.visibility_filter.visibility_of(entries).settled)

        filtered.visibility_filter.add_listener(listener)
        await filtered.two.write("b")
        assert [0] == sorted(set(seen))
        await filtered.one.end(commit=True)
        assert 1 == seen[-1]
        filtered.visibility_filter.remove_listener(listener)
        count = len(seen)
        await filtered.plain("c")
        assert count == len(seen)


@pytest.mark.parametrize("seed", range(20))
async def test_random_log_matches_a_model(seed: int) -> None:
    """The model keeps the entries of each producer in a list until its marker."""
    random = Random(seed)
    async with filtered_log() as filtered:
        writers = [Writer(filtered.log, number) for number in range(4)]
        waiting: dict[Writer, list[Position]] = {}
        hidden: set[Position] = set()
        order: list[Position] = []
        for _ in range(80):
            writer = random.choice(writers)
            kind = random.choices(("write", "end", "plain"), (6, 3, 1))[0]
            if kind == "write":
                order.append(await writer.write(*"abc"[: random.randint(1, 3)]))
                waiting.setdefault(writer, []).append(order[-1])
            elif kind == "plain":
                order.append(await filtered.plain("p"))
            elif writer in waiting:
                is_commit = random.random() < 0.5
                order.append(await writer.end(commit=is_commit))
                hidden.add(order[-1])
                written = waiting.pop(writer)
                hidden.update(() if is_commit else written)
            unsettled = min((each[0] for each in waiting.values()), default=None)
            settled = len(order) if unsettled is None else order.index(unsettled)
            expected = Visibility(settled, hidden & set(order[:settled]))
            assert expected == await filtered.visibility()
            start, step = random.randint(0, len(order)), random.randint(1, 3)
            some = (await filtered.entries())[start::step]
            part = [each.position for each in some if each.position in order[:settled]]
            assert Visibility(
                len(part), hidden & set(part)
            ) == filtered.visibility_filter.visibility_of(some)
