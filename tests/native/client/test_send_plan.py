"""Which messages share a batch."""

from typing import NamedTuple

import pytest

from kledger.native.client.send_plan import BATCH_BYTES_MAX, BATCH_COUNT_MAX, SINGLES_MAX, plan_send


class Sized(NamedTuple):
    """A message, as far as the plan looks at it."""

    size: int
    is_alone: bool = False


SMALL = Sized(10)
ALONE = Sized(10, is_alone=True)
HALF = Sized(BATCH_BYTES_MAX // 2)
LARGE = Sized(2 * BATCH_BYTES_MAX)


@pytest.mark.parametrize(
    ("waiting", "is_batching", "expected"),
    [
        ([], True, (0, False)),
        ([SMALL], True, (1, True)),
        ([SMALL] * 3, True, (3, True)),
        ([SMALL] * 3, False, (3, False)),
        ([SMALL] * (BATCH_COUNT_MAX + 1), True, (BATCH_COUNT_MAX, True)),
        ([SMALL] * (SINGLES_MAX + 1), False, (SINGLES_MAX, False)),
        ([HALF] * 3, True, (2, True)),
        ([LARGE, SMALL], True, (1, True)),
        ([SMALL, LARGE], True, (1, True)),
        ([SMALL, SMALL, ALONE, SMALL], True, (2, True)),
        ([ALONE, ALONE, SMALL], True, (2, False)),
        ([ALONE, SMALL], False, (2, False)),
    ],
)
def test_which_messages_leave_next(
    waiting: list[Sized], is_batching: bool, expected: tuple[int, bool]
) -> None:
    assert expected == plan_send(waiting, is_batching=is_batching)
