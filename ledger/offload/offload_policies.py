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
        priority = _READ_PRIORITIES.get(self.read_priority)
        if priority is None:
            raise InvalidArgument(
                f"read_priority: expected one of {', '.join(_READ_PRIORITIES)}, "
                f"got {self.read_priority!r}"
            )
        object.__setattr__(self, "read_priority", priority)

    def with_driver(self, driver: LedgerOffloader) -> "OffloadPolicies":
        """Return the same policies with another tier."""
        return replace(self, driver=driver)
