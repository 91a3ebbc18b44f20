"""Combined answers: combines the answers of several brokers about one topic or subscription.

Rule: each broker answers for the partitions that it leads, in their order. A subscription exists if
one broker has it: the partitions of another may be younger. A combination takes the name of the
topic, the address of the leader of each partition, and the answers by address.
Must not know: connections, how brokers are asked.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

from kledger.ledger import Position
from kledger.native.broker import (
    MetricsClient,
    PushedClientMetrics,
    SubscriptionStats,
    TopicCompactionStatus,
    TopicOffloadStatus,
    TopicStats,
)
from kledger.native.errors import SubscriptionNotFound, Unavailable

T = TypeVar("T")
Leaders: TypeAlias = Sequence[str]
PeekedEntry: TypeAlias = tuple[int, Position, bytes, int]

_RUNNING, _ERROR = "running", "error"
_STATES = ("not_run", "success", _ERROR, _RUNNING)
"""What a run of several brokers is: the last of these that one of them says."""


class PartitionsUnknown(Unavailable):
    """A broker does not know yet that it leads some partition; it will soon."""


def answers_of(outcomes: Mapping[str, T | BaseException]) -> dict[str, T]:
    """Return the answers of the brokers that have one.

    Args:
        outcomes: answers and errors, by the address of the broker.

    Raises:
        BaseException: the first error; SubscriptionNotFound only if all brokers say so.
    """
    answers: dict[str, T] = {}
    missing: SubscriptionNotFound | None = None
    for address, outcome in outcomes.items():
        if isinstance(outcome, SubscriptionNotFound):
            missing = missing or outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            answers[address] = outcome
    if missing is not None and not answers:
        raise missing
    return answers


def in_order(topic: str, leaders: Leaders, answers: Mapping[str, Sequence[T]]) -> tuple[T, ...]:
    """Return the values of all partitions, in order.

    Args:
        topic: its name.
        leaders: of each partition, the address of its broker.
        answers: of each broker, the values of its partitions; those of newer ones may follow.

    Raises:
        PartitionsUnknown: a broker has answered for fewer partitions than it leads.
    """
    values = {address: iter(answer) for address, answer in answers.items()}
    found = []
    for partition, leader in enumerate(leaders):
        try:
            found.append(next(values[leader]))
        except StopIteration:
            raise PartitionsUnknown(
                f"partition {partition} of {topic}: {leader} does not know yet that it leads it"
            ) from None
    return tuple(found)


def nothing(_topic: str, _leaders: Leaders, _answers: Mapping[str, None]) -> None:
    """Combine calls that answer nothing."""


def listed(topic: str, leaders: Leaders, answers: Mapping[str, list[T]]) -> list[T]:
    """Return one value of each partition. Raises as `in_order`."""
    return list(in_order(topic, leaders, answers))


def names(_topic: str, _leaders: Leaders, answers: Mapping[str, list[str]]) -> list[str]:
    """Return the names of all brokers, sorted."""
    return sorted({name for answer in answers.values() for name in answer})


def peeked(
    _topic: str, _leaders: Leaders, answers: Mapping[str, list[PeekedEntry]]
) -> list[PeekedEntry]:
    """Return the entries of all partitions, in the order of these."""
    return sorted(
        (entry for answer in answers.values() for entry in answer), key=lambda entry: entry[:2]
    )


def topic_stats(topic: str, leaders: Leaders, answers: Mapping[str, TopicStats]) -> TopicStats:
    """Return the numbers of a topic. Raises as `in_order`."""
    partitions = {address: each.partitions for address, each in answers.items()}
    subscriptions = {name for each in answers.values() for name in each.subscriptions}
    return TopicStats(
        name=topic,
        partitions=in_order(topic, leaders, partitions),
        subscriptions=tuple(sorted(subscriptions)),
    )


def subscription_stats(
    _topic: str, _leaders: Leaders, answers: Mapping[str, SubscriptionStats]
) -> SubscriptionStats:
    """Return the numbers of a subscription, which at least one broker has."""
    found = answers.values()
    return SubscriptionStats(
        type=next((each.type for each in found if each.type is not None), None),
        backlog=sum(each.backlog for each in found),
        unacknowledged=sum(each.unacknowledged for each in found),
        consumers=tuple(sorted({name for each in found for name in each.consumers})),
        redelivery_rate=sum(each.redelivery_rate for each in found),
        revision_num=max(each.revision_num for each in found),
        is_under_revision=any(each.is_under_revision for each in found),
    )


def compaction_status(
    topic: str, leaders: Leaders, answers: Mapping[str, TopicCompactionStatus]
) -> TopicCompactionStatus:
    """Return how far the compaction of a topic has come. Raises as `in_order`."""
    found = answers.values()
    state = _state_of([each.state for each in found])
    started = [each.started_ms for each in found if each.started_ms is not None]
    ended = [each.ended_ms for each in found if each.ended_ms is not None]
    horizons = {address: each.horizons for address, each in answers.items()}
    return TopicCompactionStatus(
        state=state,
        error=_error_of(state, [each.error for each in found]),
        started_ms=min(started, default=None),
        ended_ms=None if state == _RUNNING else max(ended, default=None),
        horizons=in_order(topic, leaders, horizons),
    )


def offload_status(
    topic: str, leaders: Leaders, answers: Mapping[str, TopicOffloadStatus]
) -> TopicOffloadStatus:
    """Return how far the offloading of a topic has come. Raises as `in_order`."""
    found = answers.values()
    state = _state_of([each.state for each in found])
    ends = {address: each.ends for address, each in answers.items()}
    return TopicOffloadStatus(
        state=state,
        error=_error_of(state, [each.error for each in found]),
        ledgers_left=sum(each.ledgers_left for each in found),
        ends=in_order(topic, leaders, ends),
    )


def _state_of(states: Sequence[str]) -> str:
    return max(states, key=_STATES.index)


def _error_of(state: str, errors: Sequence[str]) -> str:
    return "; ".join(filter(None, errors)) if state == _ERROR else ""


def metrics_clients(answers: Sequence[Sequence[MetricsClient]]) -> list[MetricsClient]:
    """Return each client of all brokers with its last push; the last to push comes last."""
    newest: dict[str, MetricsClient] = {}
    for each in sorted((client for answer in answers for client in answer), key=_pushed_at_ms):
        newest.pop(each.instance_id, None)
        newest[each.instance_id] = each
    return list(newest.values())


def newest_push(answers: Sequence[PushedClientMetrics | None]) -> PushedClientMetrics | None:
    """Return the last push of a client that may be connected to several brokers."""
    found = [each for each in answers if each is not None]
    return max(found, key=lambda each: _pushed_at_ms(each.client), default=None)


def _pushed_at_ms(client: MetricsClient) -> int:
    return -1 if client.pushed_at_ms is None else client.pushed_at_ms
