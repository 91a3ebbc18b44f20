"""Opens a link, with retries.

Rule: `reconnect_plan` decides whether an error is retried; every other error is raised.
Must not know: the kind of link.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from kledger.native.backoff import Backoff
from kledger.native.client import reconnect_plan
from kledger.native.client.services import ClientServices
from kledger.native.errors import KledgerError

Link = TypeVar("Link")


async def open_with_retries(
    services: ClientServices,
    open_link: Callable[[], Awaitable[Link]],
    *,
    is_first: bool,
    retry_ms: int | None = None,
    on_failed: Callable[[KledgerError], None] | None = None,
) -> Link:
    """Return the link of the first successful attempt.

    Args:
        services: the client's.
        open_link: makes one attempt.
        is_first: there was no link before.
        retry_ms: how long to retry at most; None: the kind of error decides.
        on_failed: called with the error of each failed attempt.

    Raises:
        KledgerError: a retry does not help, or the time is up.
    """
    clock = services.clock
    begin_ms = clock.monotonic_ms()
    backoff = reconnect_backoff(services)
    while True:
        try:
            return await open_link()
        except KledgerError as error:
            if on_failed is not None:
                on_failed(error)
            waited_ms = clock.monotonic_ms() - begin_ms
            if retry_ms is not None and waited_ms >= retry_ms:
                raise
            if not reconnect_plan.may_retry(error, is_first=is_first, waited_ms=waited_ms):
                raise
        await clock.sleep(backoff.next_ms())


def reconnect_backoff(services: ClientServices) -> Backoff:
    """Return the delays between attempts."""
    return Backoff(
        services.entropy,
        first_ms=reconnect_plan.DELAY_FIRST_MS,
        max_ms=reconnect_plan.DELAY_MAX_MS,
    )


def is_final(error: KledgerError | None) -> bool:
    """Return whether a link that ended with this error must not be opened again."""
    return error is not None and not reconnect_plan.may_retry(error, is_first=False, waited_ms=0)
