"""Entries of a stopped store that only a tier has, for `kledger ledger … --tier`.

Rule: a copy is reached by its own location, with the options of the settings. The tier is only
read, and what one read of it returns is in memory.
"""

import argparse
import asyncio
from collections.abc import Iterator
from typing import Self

from kledger.cli.given_settings import given_settings
from kledger.ledger import Buffer, Corrupt, ObjectStoreTiers, TierUnavailable
from kledger.ledger.inspection import LedgerRecord

READ_BYTES = 4 << 20


class TierEntries:
    """Reads copies of ledgers from synchronous code; a context manager."""

    def __init__(self, options: dict[str, object]) -> None:
        self._options = options
        self._runner = asyncio.Runner()
        self._tiers: ObjectStoreTiers | None = None

    @classmethod
    def given(cls, arguments: argparse.Namespace) -> "TierEntries | None":
        """Return one if the arguments have `--tier`. Raises SettingError."""
        if not arguments.tier:
            return None
        return cls(dict(given_settings(arguments).offload.options))

    def read(self, record: LedgerRecord, first: int) -> Iterator[Buffer]:
        """Yield the entries of a ledger from `first` on.

        Raises:
            TierUnavailable, NonRecoverable, Corrupt, InvalidArgument: the next one cannot be read.
        """
        while first < record.entries:
            for data in self._runner.run(self._read(record, first)):
                yield data
                first += 1

    async def _read(self, record: LedgerRecord, first: int) -> list[Buffer]:
        copy = record.tiered
        assert copy is not None, f"ledger {record.ledger_id} has no copy"
        self._tiers = self._tiers or ObjectStoreTiers(self._options)
        offloader = self._tiers.from_location(copy.driver, copy.location)
        if offloader is None:
            raise TierUnavailable(f"the tier {copy.driver} is not one of an object store")
        ledger = await offloader.open(record.ledger_id, copy.attempt, copy.location)
        if ledger.entries != record.entries:
            raise Corrupt(
                f"ledger {record.ledger_id}: expected {record.entries} entries, "
                f"the copy has {ledger.entries}"
            )
        return [*await ledger.read(first, end=record.entries, bytes_max=READ_BYTES)]

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close what was opened."""
        if self._tiers is not None:
            self._runner.run(self._tiers.close())
        self._runner.close()
