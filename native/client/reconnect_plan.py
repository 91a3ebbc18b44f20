"""Reconnect plan: whether to retry when a link could not be opened.

Rule: the first link fails at once, except during a reset, which is waited for until the operation
times out. A lost link is retried: the server may be restarting, or may still hold the old link.
Must not know: links, clocks.
"""

from kledger.native.errors import ConsumerBusy, KledgerError, SubscriptionFenced, Unavailable

DELAY_FIRST_MS = 100
DELAY_MAX_MS = 5_000

BUSY_RETRY_MS = 60_000
"""How long the server may still hold a lost link; after that another consumer holds it."""


def may_retry(error: KledgerError, *, is_first: bool, waited_ms: int) -> bool:
    """Return whether another attempt may help.

    Args:
        error: of the last attempt.
        is_first: there was no link before.
        waited_ms: since the first attempt.
    """
    match error:
        case SubscriptionFenced():
            return True
        case Unavailable():
            return not is_first
        case ConsumerBusy():
            return not is_first and waited_ms < BUSY_RETRY_MS
        case _:
            return False
