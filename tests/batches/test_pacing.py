"""Pauses between the steps of a long walk."""

import pytest

from kledger.batches.pacing import STEPS_PER_PAUSE, no_pause, paced

STEPS = STEPS_PER_PAUSE


@pytest.mark.parametrize(
    ("count", "pauses"),
    [(0, []), (1, []), (STEPS, []), (STEPS + 1, [STEPS]), (3 * STEPS, [STEPS, 2 * STEPS])],
)
def test_all_steps_come_in_order_with_pauses_in_between(count: int, pauses: list[int]) -> None:
    steps: list[int] = []
    paused_at: list[int] = []
    for each in paced(count, lambda: paused_at.append(len(steps))):
        steps.append(each)  # noqa: PERF402 - the pause looks at it
    assert [*range(count)] == steps
    assert pauses == paused_at


def test_no_pause_continues() -> None:
    assert [0, 1] == list(paced(2, no_pause))
