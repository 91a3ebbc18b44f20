"""Functions of groups in their processes: time limits, deaths, and how many there are."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from kledger.named_topics.errors import FunctionsUnavailable, WrongArgument
from kledger.named_topics.function_run import FunctionNames
from kledger.named_topics.group_functions import (
    IDLE_MS,
    FunctionSettings,
    GroupChannel,
    GroupFunctions,
)
from kledger.named_topics.model import ChannelElements
from kledger.named_topics.records import GroupKey
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.compute_pool import ComputePool
from kledger.runtime.compute_process import ComputeProcesses
from kledger.runtime.manual_clock import ManualClock
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers
from tests.named_topics.functions import GATE
from tests.named_topics.test_function_run import HERE, batches, elements
from tests.named_topics.words import until

GROUP = GroupKey(UUID(int=1), "g")
CHANNEL = GroupChannel(GROUP, 0)
TIMEOUT_MS = 600_000
"""By a manual clock, which only the tests advance."""
BYTES_MAX = 1 << 20


def names(function: str) -> FunctionNames:
    return FunctionNames(f"{HERE}:{function}", "")


def found(*parts: str) -> ChannelElements:
    data = tuple(batches(*parts))
    return ChannelElements(0, 0, 0, sum(map(len, parts)), data)


class Bench:
    def __init__(self, folder: Path) -> None:
        crashes: list[BaseException] = []
        self.clock = ManualClock()
        self.crashes = crashes
        self.folder = folder
        self.supervisor = Supervisor(crashes.append)
        self.processes = ComputeProcesses()
        self.pool = ComputePool(BlockingPool(4), cost_per_tick_max=0, processes=self.processes)
        self.functions = GroupFunctions(
            self.pool,
            timers=Timers(self.clock, self.supervisor),
            supervisor=self.supervisor,
            settings=FunctionSettings(TIMEOUT_MS, processes_max=2),
        )

    async def apply(
        self, function: str, given: ChannelElements, channel: GroupChannel = CHANNEL
    ) -> ChannelElements:
        return await self.functions.apply(channel, names(function), given, bytes_max=BYTES_MAX)

    async def until_held(self, count: int = 1) -> None:
        await until(lambda: len(list(self.folder.glob("held-*"))) >= count)


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setenv(GATE, str(tmp_path))
    made = Bench(tmp_path)
    yield made
    await made.functions.close()
    await made.supervisor.close()
    made.pool.close()
    assert [] == made.crashes
    assert [] == made.processes.process_ids


def values(given: ChannelElements) -> str:
    return "".join(chr(value[0]) for _, value in elements(given) if value)  # type: ignore[arg-type]


async def test_groups_with_the_same_functions_share_a_process(bench: Bench) -> None:
    for group in ("g", "h"):
        channel = GroupChannel(GroupKey(UUID(int=1), group), 0)
        left = await bench.apply("is_value", found("a.b"), channel)
        assert ("ab", 3) == (values(left), left.next_offset)
    assert 1 == len(bench.processes.process_ids)


async def test_function_that_blocks_costs_its_process_and_one_element(bench: Bench) -> None:
    """The poll of another group is answered meanwhile."""
    given = found("ab", "c")
    applying = asyncio.create_task(bench.apply("held_at_b", given))
    await bench.until_held()
    other = GroupChannel(GroupKey(UUID(int=1), "h"), 0)
    assert "a" == values(await bench.apply("is_value", found("a."), other))
    bench.clock.advance(TIMEOUT_MS)
    # The poll ends with nothing, and the next one goes on: one element after the other.
    left = await applying
    assert (0, ()) == (left.next_offset, left.batches)
    applying = asyncio.create_task(bench.apply("held_at_b", given))
    await bench.until_held(2)
    bench.clock.advance(TIMEOUT_MS)
    await applying
    left = await bench.apply("held_at_b", given)
    assert ("a", 2) == (values(left), left.next_offset)
    [failure] = left.failures
    assert (1, f"has not returned within {TIMEOUT_MS} ms") == (
        failure.offset, failure.reason.partition("it ")[2]
    )  # fmt: skip
    rest = ChannelElements(0, 0, 2, 3, given.batches[1:])
    assert "c" == values(await bench.apply("held_at_b", rest))


async def test_function_that_ends_its_process_costs_one_element(bench: Bench) -> None:
    left = await bench.apply("ends_at_b", found("ab", "c"))
    assert ("a", 2) == (values(left), left.next_offset)
    assert [1] == [each.offset for each in left.failures]
    assert "ended with status 3" in left.failures[0].reason


async def test_poll_that_is_cancelled_leaves_its_result_to_the_next_one(bench: Bench) -> None:
    given = found("ab")
    applying = asyncio.create_task(bench.apply("held_at_b", given))
    await bench.until_held()
    applying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await applying
    (bench.folder / "open").touch()
    assert "ab" == values(await bench.apply("held_at_b", given))
    assert 1 == len(list(bench.folder.glob("held-*"))), "it was called again"


async def test_process_without_work_ends_for_others_and_after_a_while(bench: Bench) -> None:
    for function in ("keeps_all", "is_value", "keeps_none"):
        await bench.apply(function, found("a"))
        assert len(bench.processes.process_ids) <= 2
    bench.clock.advance(IDLE_MS)
    await until(lambda: not bench.processes.process_ids)


async def test_process_that_works_is_waited_for(bench: Bench) -> None:
    held = [GroupChannel(GroupKey(UUID(int=1), each), 0) for each in "gh"]
    first = asyncio.create_task(bench.apply("held_at_b", found("b"), held[0]))
    await bench.until_held()
    second = asyncio.create_task(bench.apply("held_at_b", found("b"), held[1]))
    third = asyncio.create_task(bench.apply("keeps_all", found("a")))
    assert "a" == values(await third)
    (bench.folder / "open").touch()
    assert ["b", "b"] == [values(await each) for each in (first, second)]


async def test_group_without_members_leaves_nothing_behind(bench: Bench) -> None:
    applying = asyncio.create_task(bench.apply("held_at_b", found("b")))
    await bench.until_held()
    waiting = asyncio.create_task(bench.apply("held_at_b", found("b"), GroupChannel(GROUP, 1)))
    await asyncio.sleep(0)
    bench.functions.forget(GROUP)
    left = await waiting
    assert (0, ()) == (left.next_offset, left.batches)
    (bench.folder / "open").touch()
    await applying
    assert {} == bench.functions._applications


async def test_functions_that_cannot_be_loaded_are_refused(bench: Bench) -> None:
    with pytest.raises(WrongArgument, match="nothing"):
        await bench.functions.load(names("nothing"))
    await bench.functions.load(names("keeps_all"))
    await bench.functions.load(FunctionNames("", ""))
    assert 1 == len(bench.processes.process_ids)


async def test_server_that_stops_applies_no_functions(bench: Bench) -> None:
    applying = asyncio.create_task(bench.apply("held_at_b", found("b")))
    await bench.until_held()
    await bench.functions.close()
    with pytest.raises(FunctionsUnavailable, match="stopping"):
        await applying
