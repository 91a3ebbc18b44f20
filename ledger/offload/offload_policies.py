"""Offload policies: what of a managed ledger is copied to a tier, when, and which copy is read.

Must not know: where settings come from. Source: Pulsar's OffloadPolicies; PIP-73.
"""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from kledger.ledger.errors import InvalidArgument
from kledger.ledger.offload.offloader import LedgerOffloader

OFF = -1
"""As a threshold: nothing is due."""

ReadPriority: TypeAlias = Literal["tiered-first", "bookkeeper-first"]
"""Which copy of a ledger is read while there are two."""

_READ_PRIORITIES: dict[str, ReadPriority] = {
    "tiered-first": "tiered-first",
    "tiered-storage-first": "tiered-first",  # the spelling of Pulsar's code
    "bookkeeper-first": "bookkeeper-first",
}


_DRIVER_PARTS = ("name", "location", "offload", "open", "delete")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadPolicies:
    """What is copied to a tier, when, and which copy is read.

    Negative numbers switch a rule off.

    Attributes:
        driver: the tier; a text is the URL of one; None refuses to offload.
        threshold_bytes: the newest closed ledgers of so many bytes stay; the one in which the sum
            passes the threshold and all older ones are due for offloading; 0 = as soon as closed.
        threshold_ms: a ledger that was closed so long ago is due for offloading.
        deletion_lag_ms: the primary copy is deleted when the offload completed longer ago; None =
            never.
        read_priority: which copy is read while there are two; Pulsar's `tiered-storage-first` means
            `tiered-first`.
    """

    driver: LedgerOffloader | str | None = None
    threshold_bytes: int = OFF
    threshold_ms: int = OFF
    deletion_lag_ms: int | None = None
    read_priority: ReadPriority = "tiered-first"

    def __post_init__(self) -> None:
        given: object = self.read_priority  # callers may be untyped
        priority = _READ_PRIORITIES.get(str(given))
        if priority is None:
            raise InvalidArgument(
                f"read_priority: expected one of {', '.join(_READ_PRIORITIES)}, got {given!r}"
            )
        object.__setattr__(self, "read_priority", priority)
        for name in ("threshold_bytes", "threshold_ms", "deletion_lag_ms"):
            value = getattr(self, name)
            is_none = value is None and name == "deletion_lag_ms"
            if not (is_none or isinstance(value, int)):
                raise InvalidArgument(f"{name}: expected a whole number, got {value!r}")
        lacks = [each for each in _DRIVER_PARTS if not hasattr(self.driver, each)]
        if lacks and not isinstance(self.driver, str | None):
            raise InvalidArgument(
                f"driver: expected a URL or a LedgerOffloader, got {self.driver!r}, which has no "
                f"{', '.join(lacks)}"
            )

    def with_driver(self, driver: LedgerOffloader) -> "OffloadPolicies":
        """Return the same policies with another tier."""
        return replace(self, driver=driver)
