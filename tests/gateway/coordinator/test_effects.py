"""A transition collects effects in order."""

from kledger.gateway.coordinator.effects import (
    Cancel,
    Persist,
    Respond,
    Schedule,
    TimerKey,
    Transition,
)


def test_effects_keep_their_order() -> None:
    transition = Transition(now_ms=5)
    key = TimerKey("session", "a")

    transition.cancel(key)
    transition.schedule(key, 10)
    transition.answer(1, "result")
    transition.persist("record", (2, "stored"))

    assert transition.effects == [
        Cancel(key),
        Schedule(key, 10),
        Respond(1, "result"),
        Persist("record", ((2, "stored"),)),
    ]
