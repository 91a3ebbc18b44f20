"""Deadlines: wait for what another process does, never longer than stated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

WAIT_S = 120
"""Only what hangs takes so long, however busy the machine is."""
WAIT_MS = WAIT_S * 1000
PROGRAM_S = 300
"""The same for a program that has to be started, do its work and end."""
QUICK_GROUP = {"heartbeat_interval_ms": 200, "session_timeout_ms": 60_000}
"""Members are notified at once, and do not expire when the machine is busy."""
_POLL_S = 0.05


def rounds(what: str, *, within_s: float = WAIT_S) -> Iterator[None]:
    """Go round until the caller breaks out; fail with `what` when the time is over."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        yield
    raise AssertionError(f"not within {within_s:.0f} s: {what}")


def ask_until(
    ask: Callable[[], T], is_so: Callable[[T], bool], what: str, *, within_s: float = WAIT_S
) -> T:
    """Repeat a request until its answer is the expected one, and return that."""
    for _ in rounds(what, within_s=within_s):
        answer = ask()
        if is_so(answer):
            return answer
        time.sleep(_POLL_S)
    raise AssertionError("rounds never end by themselves")


def wait_until(is_so: Callable[[], bool], what: str, *, within_s: float = WAIT_S) -> None:
    """Ask until it is so."""
    ask_until(is_so, bool, what, within_s=within_s)
