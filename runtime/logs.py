"""RateLimitedLog: log lines that a peer can cause, too few to fill the disk.

Rule: at most `per_second` lines are written in a second, with as many in reserve; the next line
that is written says how many were left out. A line with a traceback counts as one.
Must not know: what the messages are about.
"""

import logging

from kledger.runtime.clock import Clock


class RateLimitedLog:
    """A logger's `warning` and `fault` behind one token bucket."""

    def __init__(self, logger: logging.Logger, per_second: int, clock: Clock) -> None:
        assert per_second > 0, f"per_second must be positive, got {per_second}"
        self._logger = logger
        self._clock = clock
        self._per_second = per_second
        self._credit = per_second * 1000
        self._refilled_ms = clock.monotonic_ms()
        self.suppressed_count = 0

    def warning(self, message: str, *arguments: object) -> None:
        """Log, or count the line as left out when the second's share is used up."""
        self._log(logging.WARNING, message, arguments, None)

    def fault(self, message: str, *arguments: object, error: BaseException) -> None:
        """Log `error` with its traceback, or count the line as left out."""
        self._log(logging.ERROR, message, arguments, error)

    def _log(
        self,
        level: int,
        message: str,
        arguments: tuple[object, ...],
        error: BaseException | None,
    ) -> None:
        now_ms = self._clock.monotonic_ms()
        earned = (now_ms - self._refilled_ms) * self._per_second
        self._credit = min(self._credit + earned, self._per_second * 1000)
        self._refilled_ms = now_ms
        if self._credit < 1000:
            self.suppressed_count += 1
            return
        self._credit -= 1000
        if self.suppressed_count:
            message += " (%d more lines were left out before this one)"
            arguments = (*arguments, self.suppressed_count)
            self.suppressed_count = 0
        self._logger.log(level, message, *arguments, exc_info=error)
