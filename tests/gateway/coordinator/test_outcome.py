"""A turn collects effects in order."""

from kledger.gateway.coordinator.outcome import Answer, Cancel, Persist, Schedule, TimerKey, Turn


def test_effects_keep_their_order() -> None:
    turn = Turn(now_ms=5)
    key = TimerKey("session", "a")

    turn.cancel(key)
    turn.schedule(key, 10)
    turn.answer(1, "result")
    turn.persist(2, "record")

    assert turn.effects == [
        Cancel(key),
        Schedule(key, 10),
        Answer(1, "result"),
        Persist(2, "record"),
    ]
