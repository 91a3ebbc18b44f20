"""What is visible of a log with transactions."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from kledger.ledger import EARLIEST, Entry, Position
from kledger.native.server.read_committed_filter import ReadCommittedFilter
from kledger.subscriptions.visibility_filter import Visibility
from kledger.topics.partition.partition_log import PartitionLog
from tests.batches.words import batch
from tests.native.transactions import Writer
from tests.topics.words import append, house


class Place:
    """A log and its screen."""

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

    async def sight(self) -> Visibility:
        return self.visibility_filter.visibility_of(await self.entries())


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    async with house() as here:
        yield Place(await here.log())


async def test_without_transactions_everything_is_visible() -> None:
    async with place() as here:
        assert Visibility(0, frozenset()) == await here.sight()
        for values in ("ab", "c", "def"):
            await here.plain(*values)
        assert Visibility(3, frozenset()) == await here.sight()


async def test_without_transactions_nothing_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with place() as here:
        await here.plain("a")
        monkeypatch.delattr(PartitionLog, "aborted_between")
        assert Visibility(1, frozenset()) == await here.sight()


async def test_open_transaction_holds_up_whatever_is_behind_it() -> None:
    async with place() as here:
        await here.plain("a", "b")
        await here.one.write("c")
        await here.plain("d")
        await here.two.write("e")
        second = await here.two.end(commit=True)
        assert Visibility(1, frozenset()) == await here.sight()
        first = await here.one.end(commit=True)
        assert Visibility(6, {first, second}) == await here.sight()


async def test_aborted_batches_are_hidden_and_those_between_them_are_not() -> None:
    async with place() as here:
        await here.one.write("before")
        hidden = {await here.one.end(commit=True)}
        for _ in range(2):
            hidden.add(await here.one.write("a", "b"))
            await here.two.write("c", "d")
            await here.plain("e")
        hidden.add(await here.two.end(commit=True))
        hidden.add(await here.one.end(commit=False))
        await here.one.write("behind")
        hidden.add(await here.one.end(commit=True))
        assert Visibility(12, hidden) == await here.sight()


async def test_an_entry_alone_is_seen_as_among_others() -> None:
    """Readers pass over what is acknowledged, markers too."""
    async with place() as here:
        aborted = await here.one.write("a")
        await here.two.write("b")
        await here.one.end(commit=False)
        await here.two.end(commit=True)
        entries = await here.entries()
        assert Visibility(1, {aborted}) == here.visibility_filter.visibility_of(entries[:1])
        assert Visibility(1, frozenset()) == here.visibility_filter.visibility_of(entries[1:2])
        assert Visibility(
            2, {aborted, entries[3].position}
        ) == here.visibility_filter.visibility_of(entries[::3])


async def test_listeners_hear_when_a_transaction_ends() -> None:
    async with place() as here:
        await here.one.write("a")
        entries, seen = await here.entries(), []

        def listener() -> None:
            seen.append(here.visibility_filter.visibility_of(entries).settled)

        here.visibility_filter.add_listener(listener)
        await here.two.write("b")
        assert [0] == sorted(set(seen))
        await here.one.end(commit=True)
        assert 1 == seen[-1]
        here.visibility_filter.remove_listener(listener)
        count = len(seen)
        await here.plain("c")
        assert count == len(seen)


@pytest.mark.parametrize("seed", range(20))
async def test_any_log_shows_what_a_list_shows(seed: int) -> None:
    """Each producer's entries wait in a list until its marker says what they are."""
    random = Random(seed)
    async with place() as here:
        writers = [Writer(here.log, number) for number in range(4)]
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
                order.append(await here.plain("p"))
            elif writer in waiting:
                is_commit = random.random() < 0.5
                order.append(await writer.end(commit=is_commit))
                hidden.add(order[-1])
                written = waiting.pop(writer)
                hidden.update(() if is_commit else written)
            unsettled = min((each[0] for each in waiting.values()), default=None)
            settled = len(order) if unsettled is None else order.index(unsettled)
            expected = Visibility(settled, hidden & set(order[:settled]))
            assert expected == await here.sight()
            start, step = random.randint(0, len(order)), random.randint(1, 3)
            some = (await here.entries())[start::step]
            part = [each.position for each in some if each.position in order[:settled]]
            assert Visibility(
                len(part), hidden & set(part)
            ) == here.visibility_filter.visibility_of(some)
