"""Which messages share a batch."""

import pytest

from kledger.batches.builder import EncodedRecord
from kledger.native.client.message_encoder import OutgoingMessage
from kledger.native.client.send_plan import BATCH_BYTES_MAX, BATCH_COUNT_MAX, SINGLES_MAX, plan_send

RECORD = EncodedRecord(b"")
SMALL = OutgoingMessage(RECORD, None, 10)
ALONE = OutgoingMessage(RECORD, None, 10, is_alone=True)
HALF = OutgoingMessage(RECORD, None, BATCH_BYTES_MAX // 2)
LARGE = OutgoingMessage(RECORD, None, 2 * BATCH_BYTES_MAX)


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
    waiting: list[OutgoingMessage], is_batching: bool, expected: tuple[int, bool]
) -> None:
    assert expected == plan_send(waiting, is_batching=is_batching)
