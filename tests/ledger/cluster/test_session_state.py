"""When a standby may fence an owner, and until when an owner knows what is newest."""

import random

import pytest

from kledger.ledger.cluster.database import OwnerObservation, SessionId
from kledger.ledger.cluster.session_state import (
    COMMIT_EVERY_MS,
    CURRENT_FOR_MS,
    FENCE_AFTER_MS,
    POLL_EVERY_MS,
    POLL_GAP_MAX_MS,
    SILENT_AFTER_MS,
    OwnerWatch,
    WatchStep,
    is_current,
)

OWNER = SessionId(7)


def observe(watch: OwnerWatch, seq: int, at_ms: int, took_ms: int = 0) -> WatchStep:
    return watch.observed(
        OwnerObservation(OWNER, seq), asked_at_ms=at_ms, answered_at_ms=at_ms + took_ms
    )


def observe_often(watch: OwnerWatch, seq: int, first_ms: int, last_ms: int) -> set[WatchStep]:
    return {observe(watch, seq, at) for at in range(first_ms, last_ms + 1, POLL_EVERY_MS)}


def test_without_an_owner_a_standby_acquires() -> None:
    watch = OwnerWatch()
    assert WatchStep.ACQUIRE == watch.observed(None, asked_at_ms=0, answered_at_ms=0)


def test_owner_that_does_not_move_is_fenced_after_the_time() -> None:
    watch = OwnerWatch()
    assert {WatchStep.POLL} == observe_often(watch, 1, 10_000, 10_000 + FENCE_AFTER_MS - 1)
    assert WatchStep.FENCE == observe(watch, 1, 10_000 + FENCE_AFTER_MS)


def test_owner_that_moves_is_not_fenced() -> None:
    watch = OwnerWatch()
    for seq in range(100):
        start = seq * (FENCE_AFTER_MS - POLL_EVERY_MS)
        assert {WatchStep.POLL} == observe_often(
            watch, seq, start, start + FENCE_AFTER_MS - POLL_EVERY_MS
        )


def test_next_owner_gets_the_whole_time() -> None:
    watch = OwnerWatch()
    observe_often(watch, 1, 0, FENCE_AFTER_MS - POLL_EVERY_MS)
    other = OwnerObservation(SessionId(8), 1)
    now = FENCE_AFTER_MS
    assert WatchStep.POLL == watch.observed(other, asked_at_ms=now, answered_at_ms=now)


def test_outage_of_the_database_starts_the_time_anew() -> None:
    """Nobody could commit meanwhile."""
    watch = OwnerWatch()
    observe_often(watch, 1, 0, FENCE_AFTER_MS - POLL_EVERY_MS)
    watch.missed()
    start = FENCE_AFTER_MS
    assert {WatchStep.POLL} == observe_often(watch, 1, start, start + FENCE_AFTER_MS - 1)
    assert WatchStep.FENCE == observe(watch, 1, start + FENCE_AFTER_MS)


@pytest.mark.parametrize("took_ms", [0, POLL_GAP_MAX_MS])
def test_pause_of_the_standby_starts_the_time_anew(took_ms: int) -> None:
    """It was stopped, or its machine slept, or the database answered late."""
    watch = OwnerWatch()
    observe(watch, 1, 0)
    at = POLL_GAP_MAX_MS + 1 - took_ms
    assert WatchStep.POLL == observe(watch, 1, at, took_ms)
    start = at + took_ms
    assert {WatchStep.POLL} == observe_often(
        watch, 1, start + POLL_EVERY_MS, start + FENCE_AFTER_MS - 1
    )
    assert WatchStep.FENCE == observe(watch, 1, start + FENCE_AFTER_MS)


def test_time_counts_from_an_answer_to_a_question() -> None:
    """The owner may have moved after the answer was made, and while the last one was under way."""
    watch = OwnerWatch()
    observe(watch, 1, 0, 400)
    observe_often(watch, 1, 500, FENCE_AFTER_MS)
    assert WatchStep.POLL == observe(watch, 1, FENCE_AFTER_MS + 399, POLL_GAP_MAX_MS - 500)
    assert WatchStep.FENCE == observe(watch, 1, FENCE_AFTER_MS + 400)


@pytest.mark.parametrize("rate", [0.5, 1.0, 1.4])
def test_owner_is_not_current_any_more_when_a_standby_may_fence_it(rate: float) -> None:
    """Also if the standby's clock runs at another rate, and polls and commits take their time."""
    for seed in range(200):
        chance = random.Random(seed)
        sent_ms = chance.randrange(10_000)
        seen_from_ms = sent_ms + chance.randrange(100)  # the commit became visible
        watch, at_ms = OwnerWatch(), sent_ms - 3_000
        while True:
            at_ms += chance.randrange(POLL_EVERY_MS, 2 * POLL_EVERY_MS)
            took_ms = chance.randrange(400)
            seq = 2 if at_ms >= seen_from_ms else 1
            asked, answered = int(at_ms * rate), int((at_ms + took_ms) * rate)
            step = watch.observed(
                OwnerObservation(OWNER, seq), asked_at_ms=asked, answered_at_ms=answered
            )
            if step is WatchStep.FENCE:
                break
            at_ms += took_ms
        assert not is_current(answered_at_ms=sent_ms, now_ms=at_ms)


def test_owner_is_current_for_a_time_after_it_has_sent_its_last_answered_commit() -> None:
    assert is_current(answered_at_ms=100, now_ms=100 + CURRENT_FOR_MS - 1)
    assert not is_current(answered_at_ms=100, now_ms=100 + CURRENT_FOR_MS)


def test_owner_is_silent_before_it_is_fenced_and_not_after_a_commit() -> None:
    watch = OwnerWatch()
    assert not watch.is_silent(10_000)
    observe_often(watch, 1, 10_000, 10_000 + SILENT_AFTER_MS)
    assert not watch.is_silent(10_000 + SILENT_AFTER_MS - 1)
    assert watch.is_silent(10_000 + SILENT_AFTER_MS)
    observe(watch, 2, 10_000 + SILENT_AFTER_MS)
    assert not watch.is_silent(10_000 + SILENT_AFTER_MS)
    assert 2 * COMMIT_EVERY_MS < SILENT_AFTER_MS < FENCE_AFTER_MS


def test_an_owner_has_several_commits_before_it_stops_to_be_current() -> None:
    assert 3 * COMMIT_EVERY_MS < CURRENT_FOR_MS < FENCE_AFTER_MS / 1.5 + 1
