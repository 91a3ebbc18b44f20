"""Transactions over two brokers in a simulator: they end everywhere, and as was answered.

A seed that fails is replayed by `python -m tests.simulation --peers --seed N --trace`. Known
mistakes are planted, and every one is caught within so many seeds.
"""

import os
from collections.abc import Callable, Collection, Iterable, Set
from typing import Any

import pytest

from kledger.gateway.coordinator.transactions.txn_markers import Refused
from kledger.gateway.coordinator.transactions.txn_state import ProducerIdAndEpoch
from kledger.gateway.peers import peer_questions
from kledger.gateway.peers.cluster_markers import ClusterMarkers
from kledger.gateway.peers.question_queue_state import QuestionQueue
from kledger.gateway.peers.remote_transactions import RemoteTransactions
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.offsets import TopicPartition
from kledger.topics.partition.producer_state import ProducerTable
from kledger.topics.partition.transaction_state import TransactionEnd
from tests.simulation.peers.run import PeerRun
from tests.simulation.planted import PlantedMistake, expect_caught, mistake_name
from tests.simulation.run import simulation
from tests.simulation.seeds import run_seed, run_seeds

SEEDS = 12
ALL_SEEDS = 1_000


def hold(seeds: range) -> None:
    failures = run_seeds(seeds, processes=os.cpu_count() or 1, make=PeerRun)
    assert not failures, "\n\n".join(map(str, failures))


def test_transactions_over_two_brokers_end_as_was_answered() -> None:
    with simulation():
        failures = [found for seed in range(SEEDS) if (found := run_seed(seed, PeerRun))]
    assert not failures, "\n\n".join(map(str, failures))


@pytest.mark.slow
def test_transactions_over_two_brokers_end_for_many_seeds() -> None:
    hold(range(SEEDS, ALL_SEEDS))


def keeps_answers(queue: QuestionQueue[Any, Any, Any], question: Any) -> Any:
    """The marker of a later transaction counts as written, as that of an earlier one was late."""
    return queue._kept.get(question)


async def forgets_refusals(
    markers: ClusterMarkers, broker_id: int, *rest: Any, right: Callable[..., Any]
) -> Refused:
    """What a peer has not answered is not asked again."""
    await right(markers, broker_id, *rest)
    return {}


async def forgets_groups_elsewhere(
    markers: ClusterMarkers, producer: ProducerIdAndEpoch, groups: Set[str], is_commit: bool
) -> Collection[str]:
    """A transaction counts as complete when the groups that are here have its outcome."""
    await markers._local.end_groups(producer, groups, is_commit)
    return ()


async def believes_silence(
    remote: RemoteTransactions, *rest: Any, right: Callable[..., Any], **more: Any
) -> dict[TopicPartition, ErrorCode]:
    """A batch is appended though its coordinator has not said that it is in the transaction."""
    return dict.fromkeys(await right(remote, *rest, **more), ErrorCode.NONE)


async def ends_only_here(
    markers: ClusterMarkers,
    topic_partitions: Iterable[TopicPartition],
    producer: ProducerIdAndEpoch,
    is_commit: bool,
) -> Refused:
    """A broker writes the markers of partitions that another one leads, where nothing happens."""
    refused = await markers._local.end(topic_partitions, producer, is_commit)
    return {each: error for each, error in refused.items() if error is not LED_ELSEWHERE}


def ignores_the_coordinator_epoch(table: ProducerTable, end: TransactionEnd) -> None:
    """A marker of a coordinator that was replaced ends the next transaction."""
    ADMIT_END(table, end._replace(coordinator_epoch=1 << 30))


ADMIT_END = ProducerTable.admit_end
LED_ELSEWHERE = ErrorCode.NOT_LEADER_OR_FOLLOWER


def with_right(owner: object, method: str, wrong: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrong variant that calls the right one."""
    right = getattr(owner, method)

    async def replacement(*arguments: Any, **more: Any) -> Any:
        return await wrong(*arguments, right=right, **more)

    replacement.__name__ = wrong.__name__
    return replacement


MISTAKES = (
    PlantedMistake(QuestionQueue, "take_kept", keeps_answers, seeds=40),
    PlantedMistake(
        ClusterMarkers, "_end_at", with_right(ClusterMarkers, "_end_at", forgets_refusals), 20
    ),
    PlantedMistake(ClusterMarkers, "end_groups", forgets_groups_elsewhere, seeds=20),
    PlantedMistake(ClusterMarkers, "end", ends_only_here, seeds=20),
    PlantedMistake(
        RemoteTransactions, "verify", with_right(RemoteTransactions, "verify", believes_silence), 20
    ),
    PlantedMistake(peer_questions, "UNANSWERED", ErrorCode.NONE, seeds=20),
    PlantedMistake(ProducerTable, "admit_end", ignores_the_coordinator_epoch, seeds=80),
)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=mistake_name)
def test_a_planted_mistake_about_peers_is_caught(
    mistake: PlantedMistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_caught(mistake, PeerRun, "--peers", monkeypatch)
