"""Which errors are retried."""

import pytest

from kledger.native.client.reconnect_plan import BUSY_RETRY_MS, may_retry
from kledger.native.errors import (
    ConsumerBusy,
    KledgerError,
    SubscriptionFenced,
    TopicNotFound,
    TopicTerminated,
    Unavailable,
)

LONG_MS = 10**9


@pytest.mark.parametrize(
    ("kind", "is_first", "waited_ms", "expected"),
    [
        (Unavailable, True, 0, False),
        (Unavailable, False, LONG_MS, True),
        (SubscriptionFenced, True, LONG_MS, True),
        (SubscriptionFenced, False, LONG_MS, True),
        (ConsumerBusy, True, 0, False),
        (ConsumerBusy, False, BUSY_RETRY_MS - 1, True),
        (ConsumerBusy, False, BUSY_RETRY_MS, False),
        (TopicNotFound, False, 0, False),
        (TopicTerminated, False, 0, False),
        (KledgerError, False, 0, False),
    ],
)
def test_which_errors_are_retried(
    kind: type[KledgerError], is_first: bool, waited_ms: int, expected: bool
) -> None:
    assert expected == may_retry(kind("why"), is_first=is_first, waited_ms=waited_ms)
