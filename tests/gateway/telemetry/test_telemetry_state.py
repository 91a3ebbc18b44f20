"""Who may ask, who may push. Codes and numbers are those that Apache Kafka 4.3.0 gave."""

from typing import Any
from uuid import UUID

import pytest

from kledger.batches.compression import Codec
from kledger.gateway.regex import compile_regex
from kledger.gateway.telemetry import telemetry_state
from kledger.gateway.telemetry.telemetry_state import (
    ClientInstance,
    TelemetryState,
    requested_metrics_of,
    subscription_id_of,
)
from kledger.gateway.wire.error_codes import ErrorCode
from tests.gateway.telemetry_words import CLIENT, ID, Wish, numbered

OTHER_ID = UUID("01234567-89ab-cdef-8123-456789abcdef")
NONE, THROTTLED = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED
IDLE_MS = 60_000


def touched(
    state: TelemetryState,
    *wishes: Wish,
    instance_id: UUID = ID,
    connection: int = 1,
    version: int = 1,
    now: int = 0,
) -> ClientInstance:
    return state.touch(
        instance_id, CLIENT, connection, subscriptions=wishes, version=version, now_ms=now
    )


def instance(*wishes: Wish) -> ClientInstance:
    return touched(TelemetryState(), *(wishes or (Wish(),)))


def push(one: ClientInstance, now: int, **changes: Any) -> ErrorCode:
    usual: dict[str, Any] = {
        "subscription_id": one.requested.subscription_id,
        "is_terminating": False,
        "codec": Codec.ZSTD,
        "size": 10,
        "size_max": 100,
        "now_ms": now,
    }
    return one.admit_push(**usual | changes)


@pytest.mark.parametrize(
    ("instance_id", "metrics", "interval_ms", "expected"),
    [
        (OTHER_ID, (), 300_000, 1422351326),
        (UUID(int=1), (), 300_000, -725132321),
        (OTHER_ID, ("org.apache.kafka.",), 1_000, 1940126834),
        (OTHER_ID, ("*",), 500, 725637307),
        (ID, ("a.b", "c.d"), 300_000, -139128136),
    ],
)
def test_subscription_ids_are_those_of_kafka(
    instance_id: UUID, metrics: tuple[str, ...], interval_ms: int, expected: int
) -> None:
    assert expected == subscription_id_of(instance_id, metrics, interval_ms)


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ((), ((), (), 300_000)),
        ((Wish("a", ("x", "b")),), (("a",), ("b", "x"), 1_000)),
        ((Wish("a", ("x",), 700), Wish("b", ("y", "x"), 900)), (("a", "b"), ("x", "y"), 700)),
        ((Wish("a", ("x",)), Wish("b", ("*", "y"))), (("a", "b"), ("*",), 1_000)),
        ((Wish("a", (), 200),), (("a",), (), 200)),
        ((Wish("slow", ("x",), 3_600_000),), (("slow",), ("x",), 300_000)),
    ],
)
def test_what_is_wanted_is_joined(wishes: tuple[Wish, ...], expected: tuple[object, ...]) -> None:
    requested = requested_metrics_of(ID, CLIENT, wishes, 7)
    assert expected == (requested.names, requested.metrics, requested.interval_ms)
    assert 7 == requested.version


@pytest.mark.parametrize(
    ("name", "text", "is_match"),
    [
        ("client_instance_id", "8SNFZ4mrze-BI0VniavN7w", True),
        ("client_id", "app", True),
        ("client_id", "ap", False),
        ("client_id", "a.*", True),
        ("client_software_name", "lib", True),
        ("client_software_version", "1[.]0", True),
        ("client_source_address", "10[.]0[.]0[.]1", True),
        ("client_source_port", "[0-9]+", True),
        ("client_source_port", "4001", False),
        ("client_unheard_of", ".*", False),
    ],
)
def test_clients_are_chosen_by_what_they_are(name: str, text: str, is_match: bool) -> None:
    expressions = {name: compile_regex(text)}
    assert is_match == CLIENT.is_matched(ID, expressions)
    also = {"client_id": compile_regex("another"), **expressions}
    assert (is_match and name == "client_id") == CLIENT.is_matched(ID, also)


def test_a_client_without_a_name_matches_no_expression_about_it() -> None:
    nameless = telemetry_state.TelemetryClient(
        client_id=None, software_name="lib", software_version="1", address="h", port=1
    )
    assert not nameless.is_matched(ID, {"client_id": compile_regex(".*")})
    assert nameless.is_matched(ID, {})


def test_second_request_within_the_interval_is_too_early() -> None:
    one = instance()
    assert [NONE, THROTTLED, NONE] == [one.admit_get(now) for now in (0, 999, 1_000)]
    assert NONE == push(one, 1_500)
    assert [THROTTLED, NONE] == [one.admit_get(now) for now in (2_499, 2_500)]


def test_the_first_push_behind_an_answer_is_never_too_early() -> None:
    one = instance()
    assert NONE == one.admit_get(0)
    assert [NONE, THROTTLED, NONE] == [push(one, now) for now in (500, 1_499, 1_500)]
    one.admit_get(2_600)
    assert [NONE, THROTTLED] == [push(one, now) for now in (2_700, 2_800)]


def test_a_push_of_an_old_subscription_counts_and_permits_a_request_at_once() -> None:
    one = instance()
    one.admit_get(0)
    assert ErrorCode.UNKNOWN_SUBSCRIPTION_ID == push(one, 10, subscription_id=5)
    assert NONE == one.admit_get(20)
    assert THROTTLED == push(one, 30), "the request came too early"
    assert THROTTLED == one.admit_get(40)
    assert NONE == push(one, 1_010)


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_is_taken(codec: Codec) -> None:
    assert NONE == push(instance(), 0, codec=codec)


@pytest.mark.parametrize("codec", [5, -1, 127])
def test_an_unknown_codec_allows_to_ask_at_once(codec: int) -> None:
    one = instance()
    one.admit_get(0)
    assert ErrorCode.UNSUPPORTED_COMPRESSION_TYPE == push(one, 10, codec=codec)
    assert [NONE, THROTTLED] == [one.admit_get(now) for now in (20, 30)]


def test_a_large_push_is_refused_and_counts_for_the_interval() -> None:
    one = instance()
    assert NONE == push(one, 0, size=100)
    assert ErrorCode.TELEMETRY_TOO_LARGE == push(one, 1_000, size=101)
    assert THROTTLED == one.admit_get(1_500)


def test_a_terminating_push_comes_at_any_time_but_once() -> None:
    one = instance()
    assert [NONE, THROTTLED] == [push(one, 0), push(one, 1)]
    assert NONE == push(one, 2, is_terminating=True)
    assert ErrorCode.INVALID_REQUEST == push(one, 3, is_terminating=True)
    assert ErrorCode.INVALID_REQUEST == push(one, 5_000)
    assert NONE == push(one, 5_001), "Kafka looks at the last push only"


def test_errors_come_in_their_order() -> None:
    bad: dict[str, Any] = {"subscription_id": 5, "codec": 9, "size": 101}
    one = instance()
    assert ErrorCode.UNKNOWN_SUBSCRIPTION_ID == push(one, 0, **bad)
    assert THROTTLED == push(one, 1, **bad)
    del bad["subscription_id"]
    assert ErrorCode.UNSUPPORTED_COMPRESSION_TYPE == push(one, 1_000, **bad)
    push(one, 1_001, is_terminating=True)
    assert ErrorCode.INVALID_REQUEST == push(one, 1_002, **bad)


def test_changed_subscriptions_make_everything_new() -> None:
    state = TelemetryState()
    one = touched(state, Wish(metrics=("a",)))
    assert [NONE, NONE] == [one.admit_get(0), push(one, 1, is_terminating=True)]
    assert one is touched(state, Wish(metrics=("b",)), now=2), "the version is the same"
    two = touched(state, Wish(metrics=("b",)), version=2, now=3)
    assert (("b",), 2) == (two.requested.metrics, two.requested.version)
    assert one.requested.subscription_id != two.requested.subscription_id
    assert [NONE, NONE] == [two.admit_get(3), push(two, 4)]


def test_an_instance_goes_with_its_connection() -> None:
    state = TelemetryState()
    first = touched(state, Wish(), connection=1)
    assert first is touched(state, Wish(), connection=2, now=1)
    state.disconnected(2)
    assert ID in state
    state.disconnected(1)
    state.disconnected(1)
    assert 0 == len(state)
    assert first is not touched(state, Wish(), connection=2, now=2)


def test_an_instance_that_was_made_anew_goes_with_its_new_connection() -> None:
    state = TelemetryState()
    touched(state, Wish(), connection=1)
    touched(state, Wish(), connection=2, version=2)
    state.disconnected(1)
    assert ID in state
    state.disconnected(2)
    assert ID not in state


@pytest.mark.parametrize(("interval_ms", "idle_ms"), [(1_000, IDLE_MS), (300_000, 900_000)])
def test_silent_client_is_forgotten(interval_ms: int, idle_ms: int) -> None:
    state, wish = TelemetryState(), Wish(interval_ms=interval_ms)
    one = touched(state, wish)
    state.expire(idle_ms - 1)
    assert one is touched(state, wish, now=idle_ms - 1)
    state.expire(2 * idle_ms - 2)
    assert one is state.get(ID)
    assert one is not touched(state, wish, now=2 * idle_ms - 1), "it has not been looked up yet"
    state.expire(3 * idle_ms)
    assert (None, 0) == (state.get(ID), len(state))


def test_nothing_is_left_of_connections_whose_instances_expired() -> None:
    state = TelemetryState()
    for number in range(10):
        touched(state, instance_id=numbered(number), connection=number)
    state.expire(10 * IDLE_MS)
    state.expire(100 * IDLE_MS)
    assert {} == state._of_connection


def test_too_many_instances_evict_the_longest_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telemetry_state, "INSTANCES_MAX", 3)
    state = TelemetryState()
    for number in (0, 1, 2, 0, 3):
        touched(state, instance_id=numbered(number), connection=number)
    assert [numbered(number) for number in (2, 0, 3)] == [one.id for one in state.instances()]
    assert 3 == len(state._of_connection)
