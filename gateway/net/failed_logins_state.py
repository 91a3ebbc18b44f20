"""Failed logins: how many there were from each address, for limits and for the audit log.

Rule: pure. An address that fails too often may not try for a while; the others are not affected.
Failures of one address within a second are one line of the log.
Must not know: connections, clocks, users.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

FAILURES_MAX: Final = 100
"""Failed logins of one address in a short time."""
FAILURES_PER_SECOND: Final = 10
"""Failed logins of one address in the long run."""
ADDRESSES_MAX: Final = 10_000
"""Addresses that are counted; one more lets the one that failed longest ago begin anew."""


@dataclass(slots=True)
class _Failures:
    """The failures of one address: a bucket that runs dry."""

    count: float
    counted_ms: int
    unlogged: int = 0
    reason: str = ""

    def at(self, now_ms: int) -> float:
        """Return how full the bucket is."""
        return max(self.count - (now_ms - self.counted_ms) * FAILURES_PER_SECOND / 1_000, 0)


@dataclass(frozen=True, slots=True)
class FailedLoginsLine:
    """The failures of one address that one line of the log is about."""

    address: str
    count: int
    reason: str
    """Why the last one failed."""


class FailedLogins:
    """The failed logins of all addresses."""

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, _Failures] = OrderedDict()

    def admits(self, address: str, now_ms: int) -> bool:
        """Return whether a client of an address may try to log in."""
        failures = self._by_address.get(address)
        return failures is None or failures.at(now_ms) < FAILURES_MAX

    def failed(self, address: str, reason: str, now_ms: int) -> None:
        """Count a failure."""
        failures = self._by_address.setdefault(address, _Failures(0, now_ms))
        failures.count, failures.counted_ms = failures.at(now_ms) + 1, now_ms
        failures.unlogged += 1
        failures.reason = reason
        self._by_address.move_to_end(address)
        if len(self._by_address) > ADDRESSES_MAX:
            self._by_address.popitem(last=False)

    def take_lines(self) -> list[FailedLoginsLine]:
        """Return what was not logged; it counts as logged then."""
        lines = [
            FailedLoginsLine(address, failures.unlogged, failures.reason)
            for address, failures in self._by_address.items()
            if failures.unlogged
        ]
        for failures in self._by_address.values():
            failures.unlogged = 0
        return lines
