"""Named topics in a simulator: clients, links and servers that end, beside a model.

A seed that fails is replayed by `python -m tests.simulation --named-topics --seed N --trace`. Known
mistakes are planted, and every one is caught within so many seeds, for its own reason.
"""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from kledger.batches.header import read_header
from kledger.batches.pacing import Pause
from kledger.ledger.record_table import GroupedRecordTable, RecordChange, submit_together
from kledger.named_topics import group_functions
from kledger.named_topics import service as service_module
from kledger.named_topics.channel_plan import allocate
from kledger.named_topics.commit_plan import ChannelView, CommitDecision, decide_commit
from kledger.named_topics.element_expiry import ElementExpiry
from kledger.named_topics.function_run import (
    FunctionLimits,
    FunctionNames,
    FunctionOutput,
    FunctionRun,
    apply_functions,
)
from kledger.named_topics.group_functions import GroupChannel, GroupFunctions
from kledger.named_topics.log_trimming import LogTrimming
from kledger.named_topics.model import ChannelAllocation, ChannelElements, SeekOutcome
from kledger.named_topics.ownership_state import NO_OWNER, ChannelOwnership
from kledger.named_topics.seek_plan import SeekDecision, decide_seek
from kledger.named_topics.service import NamedTopicService
from kledger.named_topics.subscriber_group import SubscriberGroup
from kledger.native.client.named_topics.element import Element
from kledger.native.client.named_topics.expired_elements import ExpiredElements
from kledger.native.client.named_topics.subscriber_state import SubscriberState
from kledger.topics import PartitionLog
from tests.simulation.named_topics.run import NamedTopicRun
from tests.simulation.planted import first_failure
from tests.simulation.run import simulation
from tests.simulation.seeds import run_seeds

SEEDS = 20
ALL_SEEDS = 3_000


def hold(seeds: range, *, processes: int = 1) -> None:
    failures = run_seeds(seeds, processes=processes, make=NamedTopicRun)
    assert not failures, "\n\n".join(map(str, failures))


def test_named_topics_hold() -> None:
    hold(range(SEEDS))


@pytest.mark.slow
def test_named_topics_hold_for_many_seeds() -> None:
    hold(range(SEEDS, ALL_SEEDS), processes=os.cpu_count() or 1)


def test_a_seed_of_named_topics_writes_the_same_trace_again() -> None:
    with simulation():
        first, second = NamedTopicRun(3), NamedTopicRun(3)
        assert (None, None) == (first.go(), second.go())
    assert 20 < len(first.trace)
    assert first.trace == second.trace


@dataclass(frozen=True)
class TopicMistake:
    """A wrong variant, the function that it replaces, and what the model says about it."""

    owner: object
    name: str
    wrong: Callable[..., Any]
    reason: str
    seeds: int = 60


def keeps_numbers_of_owners(ownership: ChannelOwnership) -> None:
    """A channel that gets another owner keeps its ownership number."""
    ownership.epoch += 1
    owners = [NO_OWNER] * len(ownership._owners)
    for member, channels in allocate(len(owners), ownership._deadlines).items():
        for channel in channels:
            owners[channel] = member
    ownership._owners = owners


def never_expires(ownership: ChannelOwnership, now_ms: int) -> list[int]:
    """A subscriber that is silent keeps its channels."""
    for member in ownership.members:
        ownership.heartbeat(member, now_ms)
    return []


def lets_anyone_commit(
    view: ChannelView | None, channel: int, offset: int, *, what: str
) -> CommitDecision:
    """A former owner's late commit counts."""
    if view is not None:
        view = view._replace(is_owner=True)
    return decide_commit(view, channel, offset, what=what)


def rolls_nothing_back(*given: Any, **named: Any) -> SeekDecision:
    """A seek backwards leaves the commit where it is."""
    decision, record = decide_seek(*given, **named), given[0]
    kept = max(decision.record.next_offset, record.next_offset)
    return decision._replace(record=decision.record._replace(next_offset=kept))


def begins_with_what_is_new(
    service: NamedTopicService, group: SubscriberGroup, subscriber: int
) -> ChannelAllocation:
    """A new owner begins behind what was sent to the owner before."""
    allocation = right_allocation(service, group, subscriber)
    channels = tuple(
        each._replace(
            next_offset=max(each.next_offset, group._fetched.get(each.channel, (0, -1))[1] + 1)
        )
        for each in allocation.channels
    )
    return allocation._replace(channels=channels)


async def trims_nothing(_: LogTrimming) -> None:
    """Storage stays."""


async def trims_everything(
    service: NamedTopicService,
) -> AsyncIterator[tuple[PartitionLog, int]]:
    """Storage goes, whether it is committed or not."""
    async for log, _ in right_trimmed_logs(service):
        yield log, log.last_stable_offset


async def answers_before_it_is_durable(changes: Sequence[RecordChange]) -> None:
    """A commit or a seek is answered while its rows are being written."""
    if len(changes) == 1 and isinstance(changes[0][0], GroupedRecordTable):
        submit_together(changes)
    else:
        await right_submit(changes)


def keeps_what_was_fetched(state: SubscriberState, outcomes: Sequence[SeekOutcome]) -> None:
    """What was pre-fetched of a channel before a seek is handed out behind it."""
    for outcome in outcomes:
        channel = state._channels.get(outcome.channel)
        if channel is not None:
            channel.revision, channel.fetch_offset = outcome.revision, outcome.next_offset


def keeps_what_is_committed(
    state: SubscriberState, channel: int, offset: int, revision: int
) -> None:
    """A subscriber that joins again hands out what it commits meanwhile."""


async def filters_nothing(
    _: GroupFunctions,
    _place: GroupChannel,
    _names: FunctionNames,
    found: ChannelElements,
    **_named: int,
) -> ChannelElements:
    """The filter of a group is stored, and not applied."""
    return found


async def filters_too_much(
    functions: GroupFunctions,
    place: GroupChannel,
    names: FunctionNames,
    found: ChannelElements,
    *,
    bytes_max: int,
) -> ChannelElements:
    """Of what a filter leaves, the last batch gets lost, unless it is the only one."""
    left = await right_apply(functions, place, names, found, bytes_max=bytes_max)
    return left._replace(batches=left.batches[:-1] or left.batches)


def goes_on_behind_the_page(
    run: FunctionRun, data: memoryview, sizes: Sequence[int], limits: FunctionLimits, pause: Pause
) -> FunctionOutput:
    """A call that ends at its limit of bytes loses the rest of what was read."""
    output = right_apply_functions(run, data, sizes, limits._replace(bytes_max=1), pause)
    last = read_header(data[sum(sizes) - sizes[-1] :]).last_offset
    return output._replace(next_offset=last + 1)


def refuses_all_but_owners(
    view: ChannelView | None, channel: int, offset: int, *, what: str
) -> CommitDecision:
    """Nobody commits without ownership, whatever the option says."""
    if view is not None:
        view = view._replace(may_be_unowned=False)
    return decide_commit(view, channel, offset, what=what)


async def expires_nothing(_: ElementExpiry, _log: PartitionLog, _expiry_ms: int) -> int:
    """Elements stay, however old they are."""
    return 0


def hands_out_what_has_expired(_: ExpiredElements, _element: Element) -> bool:
    """What was pre-fetched is handed out, however old it is by then."""
    return False


right_apply = GroupFunctions.apply
right_apply_functions = apply_functions
right_submit = service_module._submit
right_allocation = NamedTopicService._allocation
right_trimmed_logs = NamedTopicService._trimmed_logs

MISTAKES = (
    TopicMistake(ChannelOwnership, "_allocate", keeps_numbers_of_owners, "is owned by"),
    TopicMistake(ChannelOwnership, "expire", never_expires, "has the subscribers"),
    TopicMistake(service_module, "decide_commit", lets_anyone_commit, "never got them", seeds=300),
    TopicMistake(service_module, "decide_seek", rolls_nothing_back, "was next"),
    TopicMistake(NamedTopicService, "_allocation", begins_with_what_is_new, "its owner begins at"),
    TopicMistake(LogTrimming, "trim", trims_nothing, "begins at 0, expected"),
    TopicMistake(NamedTopicService, "_trimmed_logs", trims_everything, "0 remain, expected"),
    TopicMistake(service_module, "_submit", answers_before_it_is_durable, "committed 0 behind"),
    TopicMistake(SubscriberState, "seeked", keeps_what_was_fetched, "comes"),
    TopicMistake(
        SubscriberState, "committed", keeps_what_is_committed, "comes again, it is", seeds=300
    ),
    TopicMistake(GroupFunctions, "apply", filters_nothing, "it is filtered out"),
    TopicMistake(GroupFunctions, "apply", filters_too_much, "was next"),
    TopicMistake(group_functions, "apply_functions", goes_on_behind_the_page, "was next"),
    TopicMistake(service_module, "decide_commit", refuses_all_but_owners, "is refused"),
    TopicMistake(ElementExpiry, "first_offset", expires_nothing, "remain, expected", seeds=120),
    TopicMistake(
        ExpiredElements, "__contains__", hands_out_what_has_expired, "it has expired", seeds=300
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.wrong.__name__)
def test_a_planted_mistake_about_named_topics_is_caught(
    mistake: TopicMistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mistake.owner, mistake.name, mistake.wrong)
    failure = first_failure(range(mistake.seeds), NamedTopicRun)
    assert failure is not None, f"not caught within {mistake.seeds} seeds"
    assert mistake.reason in failure.error
    assert f"--named-topics --seed {failure.seed} --trace" in str(failure)
