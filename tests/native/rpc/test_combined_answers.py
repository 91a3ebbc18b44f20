"""What several brokers say of a topic is combined as one would say it."""

from dataclasses import replace

import pytest

from kledger.delivery.model import RecordLocation, RecordPosition
from kledger.ledger import Position
from kledger.native.broker import (
    MetricsClient,
    PartitionStats,
    PushedClientMetrics,
    SubscriptionStats,
    TopicCompactionStatus,
    TopicOffloadStatus,
    TopicStats,
)
from kledger.native.errors import ConsumerBusy, SubscriptionNotFound, Unavailable
from kledger.native.rpc import combined_answers
from kledger.native.rpc.combined_answers import PartitionsUnknown, answers_of, in_order

LEADERS = ("a:1", "b:2", "a:1", "a:1", "b:2")
NO_SUBSCRIPTION = SubscriptionStats(
    type=None,
    backlog=0,
    unacknowledged=0,
    consumers=(),
    redelivery_rate=0.0,
    revision_num=0,
    is_under_revision=False,
)


def test_values_of_partitions_are_in_the_order_of_partitions() -> None:
    answers = {"a:1": [0, 2, 3], "b:2": [1, 4]}
    assert (0, 1, 2, 3, 4) == in_order("orders", LEADERS, answers)
    assert [0, 1, 2, 3, 4] == combined_answers.listed("orders", LEADERS, answers)


def test_partitions_that_were_added_since_the_lookup_are_left_out() -> None:
    answers = {"a:1": [0, 2, 3, 5], "b:2": [1, 4, 6]}
    assert (0, 1, 2, 3, 4) == in_order("orders", LEADERS, answers)


def test_broker_that_does_not_know_its_partitions_yet_is_asked_again() -> None:
    with pytest.raises(PartitionsUnknown, match="partition 4 of orders: b:2 does not know"):
        in_order("orders", LEADERS, {"a:1": [0, 2, 3], "b:2": [1]})
    assert issubclass(PartitionsUnknown, Unavailable)


def test_subscription_is_missing_if_all_say_so() -> None:
    missing = SubscriptionNotFound("orders has no subscription s")
    assert {"b:2": 1} == answers_of({"a:1": missing, "b:2": 1})
    with pytest.raises(SubscriptionNotFound, match="orders has no subscription s"):
        answers_of({"a:1": missing, "b:2": SubscriptionNotFound("another")})


def test_every_other_error_is_that_of_the_call() -> None:
    busy, lost = ConsumerBusy("busy"), Unavailable("lost")
    with pytest.raises(ConsumerBusy):
        answers_of({"a:1": 1, "b:2": busy, "c:3": lost})
    with pytest.raises(Unavailable):
        answers_of({"a:1": SubscriptionNotFound("missing"), "b:2": lost})


def test_topic_stats() -> None:
    def partition(end: int) -> PartitionStats:
        return PartitionStats(0, end, end * 10)

    answers = {
        "a:1": TopicStats(
            name="orders",
            partitions=(partition(0), partition(2), partition(3)),
            subscriptions=("s", "y"),
        ),
        "b:2": TopicStats(
            name="orders", partitions=(partition(1), partition(4)), subscriptions=("a", "s")
        ),
    }
    found = combined_answers.topic_stats("orders", LEADERS, answers)
    assert [0, 1, 2, 3, 4] == [each.end_offset for each in found.partitions]
    assert ("a", "s", "y") == found.subscriptions


def test_names_are_sorted_and_each_is_there_once() -> None:
    answers = {"a:1": ["s", "y"], "b:2": ["a", "s"]}
    assert ["a", "s", "y"] == combined_answers.names("orders", LEADERS, answers)


def test_subscription_stats() -> None:
    answers = {
        "a:1": replace(NO_SUBSCRIPTION, backlog=3, consumers=("x", "z"), redelivery_rate=0.5),
        "b:2": SubscriptionStats(
            type="shared",
            backlog=4,
            unacknowledged=2,
            consumers=("x", "y"),
            redelivery_rate=0.25,
            revision_num=7,
            is_under_revision=True,
        ),
    }
    assert SubscriptionStats(
        type="shared",
        backlog=7,
        unacknowledged=2,
        consumers=("x", "y", "z"),
        redelivery_rate=0.75,
        revision_num=7,
        is_under_revision=True,
    ) == combined_answers.subscription_stats("orders", LEADERS, answers)


def test_peeked_entries_are_in_the_order_of_partitions() -> None:
    answers = {
        "a:1": [(0, Position(3, 0), b"x", -1), (2, Position(4, 7), b"y", 1)],
        "b:2": [(1, Position(1, 9), b"z", -1), (1, Position(2, 0), b"w", -1)],
    }
    found = combined_answers.peeked("orders", LEADERS, answers)
    assert [b"x", b"z", b"w", b"y"] == [data for _, _, data, _ in found]


@pytest.mark.parametrize(
    ("states", "state", "error"),
    [
        (("not_run", "not_run"), "not_run", ""),
        (("success", "not_run"), "success", ""),
        (("success", "error"), "error", "partition 1: b"),
        (("error", "error"), "error", "partition 0: a; partition 1: b"),
        (("error", "running"), "running", ""),
    ],
)
def test_states_of_runs(states: tuple[str, str], state: str, error: str) -> None:
    errors = [
        text if each == "error" else ""
        for each, text in zip(states, ("partition 0: a", "partition 1: b"), strict=True)
    ]
    leaders = ("a:1", "b:2")
    compactions = {
        address: TopicCompactionStatus(
            state=each, error=text, started_ms=started, ended_ms=started + 5, horizons=(None,)
        )
        for address, each, text, started in zip(leaders, states, errors, (30, 20), strict=True)
    }
    found = combined_answers.compaction_status("orders", leaders, compactions)
    assert (state, error, 20) == (found.state, found.error, found.started_ms)
    assert (None if state == "running" else 35) == found.ended_ms
    offloads = {
        address: TopicOffloadStatus(
            state=each, error=text, ledgers_left=2, ends=(Position(number, 0),)
        )
        for number, (address, each, text) in enumerate(zip(leaders, states, errors, strict=True))
    }
    assert TopicOffloadStatus(
        state=state, error=error, ledgers_left=4, ends=(Position(0, 0), Position(1, 0))
    ) == combined_answers.offload_status("orders", leaders, offloads)


def test_horizons_are_in_the_order_of_partitions() -> None:
    horizon = RecordLocation(RecordPosition(Position(3, 1), 0), 1, 9)

    def status(*horizons: RecordLocation | None) -> TopicCompactionStatus:
        return TopicCompactionStatus(
            state="not_run", error="", started_ms=None, ended_ms=None, horizons=horizons
        )

    found = combined_answers.compaction_status(
        "orders", LEADERS, {"a:1": status(None, None, None), "b:2": status(horizon, None)}
    )
    assert (None, horizon, None, None, None) == found.horizons
    assert (None, None) == (found.started_ms, found.ended_ms)


def metrics_client(instance_id: str, pushed_at_ms: int | None, address: str) -> MetricsClient:
    return MetricsClient(
        instance_id=instance_id,
        client_id=None,
        software="x 1",
        address=address,
        subscriptions=(),
        pushed_at_ms=pushed_at_ms,
    )


def test_kafka_client_of_several_brokers_has_its_last_push() -> None:
    older, newer = metrics_client("k", 10, "a:9"), metrics_client("k", 30, "b:9")
    other, silent = metrics_client("o", 20, "a:8"), metrics_client("s", None, "b:7")
    assert [silent, other, newer] == combined_answers.metrics_clients(
        [[older, other], [silent, newer]]
    )
    pushes = [PushedClientMetrics(newer, b"new"), None, PushedClientMetrics(older, b"old")]
    assert pushes[0] == combined_answers.newest_push(pushes)
    assert None is combined_answers.newest_push([None, None])
