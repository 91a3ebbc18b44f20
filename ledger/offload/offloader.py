"""Ledger offloader: what the ledger asks of a tier, a second storage for closed ledgers.

Rule: an offloaded copy belongs to one attempt and is named by ledger id and attempt id, so two
attempts never write the same objects. A copy can be opened only after `offload` returned. Entries
of a copy are byte for byte those of the primary, with the same ids.
Must not know: managed ledgers, metadata, which copy is read.
Source: Pulsar's LedgerOffloader (offload, readOffloaded, deleteOffloaded).
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable
from uuid import UUID

from kledger.ledger.engine.base import Buffer


class OffloadSource(Protocol):
    """A closed ledger whose entries are to be copied.

    Attributes:
        ledger_id: of the ledger.
        entries: how many it has, numbered from 0; at least one.
        size: their bytes.
    """

    @property
    def ledger_id(self) -> int:
        """See the class."""
        ...

    @property
    def entries(self) -> int:
        """See the class."""
        ...

    @property
    def size(self) -> int:
        """See the class."""
        ...

    async def read(self, first: int, *, bytes_max: int) -> Sequence[Buffer]:
        """Return the entries from `first` on: at least one, at most `bytes_max` bytes beyond it.

        Raises:
            LedgerError: the ledger cannot be read, or was deleted.
        """
        ...


class TieredLedger(Protocol):
    """An opened copy; what it keeps in memory is small, and reading it needs no lock.

    Attributes:
        entries: how many it has.
    """

    @property
    def entries(self) -> int:
        """See the class."""
        ...

    async def read(self, first: int, *, end: int, bytes_max: int) -> Sequence[Buffer]:
        """Return the entries from `first` up to `end` (exclusive): at least one.

        Args:
            first: id of the first entry.
            end: id after the last one wanted; at most `entries`.
            bytes_max: total size at most; the first entry is returned whatever its size.

        Raises:
            TierUnavailable: the tier did not answer as it should; a retry may succeed.
            NonRecoverable: an object is missing.
            Corrupt: an object is not whole, not of this ledger, or damaged.
        """
        ...

    async def close(self) -> None:
        """Release what it holds."""
        ...


class LedgerOffloader(Protocol):
    """A tier.

    Attributes:
        name: of the kind of tier, stored with every copy.
        location: where this tier keeps the copies, as texts that `open` and `delete` understand,
            also after the settings have changed; stored with every copy, without secrets.
    """

    @property
    def name(self) -> str:
        """See the class."""
        ...

    @property
    def location(self) -> Mapping[str, str]:
        """See the class."""
        ...

    async def offload(
        self, source: OffloadSource, attempt: UUID, location: Mapping[str, str]
    ) -> None:
        """Copy a ledger; when it returns, the copy is whole and as durable as the tier makes it.

        Raises:
            TierUnavailable: the tier failed; the caller deletes what the attempt left.
            LedgerError: of the source.
        """
        ...

    async def open(
        self, ledger_id: int, attempt: UUID, location: Mapping[str, str]
    ) -> TieredLedger:
        """Open a copy.

        Raises:
            TierUnavailable, NonRecoverable, Corrupt: as `TieredLedger.read`.
        """
        ...

    async def delete(self, ledger_id: int, attempt: UUID, location: Mapping[str, str]) -> None:
        """Delete a copy, or what an attempt left of one; what does not exist is no error.

        Raises:
            TierUnavailable: it may still be there; the caller tries again.
        """
        ...


@runtime_checkable
class UploadingOffloader(Protocol):
    """What a tier may have beside `LedgerOffloader`: uploads that are no objects yet."""

    async def abort_uploads(
        self, ledger_id: int, attempt: UUID, location: Mapping[str, str]
    ) -> None:
        """End the uploads that an attempt has begun, in whatever process.

        Raises:
            TierUnavailable: there may be some left; the caller tries again.
        """
        ...
