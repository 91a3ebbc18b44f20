"""Whether a link that could not be opened is tried again.

Rule: what was never connected hears of trouble at once; only a reset under way is waited for, for
as long as the operation may take that opens the link. What was connected is patient: the server may
be starting, or may still think that the old link lives.
Must not know: links, clocks.
"""

from kledger.native.errors import ConsumerBusy, KledgerError, SubscriptionFenced, Unavailable

DELAY_FIRST_MS = 100
DELAY_MAX_MS = 5_000

BUSY_RETRY_MS = 60_000
"""How long a lost link's place may look taken, by itself; after that somebody else has it."""


def may_retry(error: KledgerError, *, is_first: bool, waited_ms: int) -> bool:
    """Tell whether opening again may help.

    Args:
        error: what the last try ended with.
        is_first: there was no link before.
        waited_ms: since the first try.
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
