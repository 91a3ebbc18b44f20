"""The part of `kledger doctor` and `kledger ledger verify` that checks the tier.

Rule: a copy is reached by its own location, so copies that earlier settings have put elsewhere are
checked, too. What belongs to no ledger is looked for below the URL of the settings, or else below
that which the store remembers. The tier is only read.
"""

import argparse
import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kledger.cli.given_settings import given_settings
from kledger.ledger import InvalidArgument, LedgerOffloader, ObjectStoreTiers, TierUnavailable
from kledger.ledger.inspection import CheckEntry, ListedCopy, StoppedStore, TierListing, check_copy
from kledger.settings import OffloadSettings
from kledger.topics.partition import manifest
from kledger.topics.partition_name import partition_of
from kledger.topics.tier_url import remembered_url


@dataclass(slots=True)
class TierReport:
    """What was found in the tier.

    Attributes:
        copies: how many were checked.
        problems: a line each.
    """

    copies: int = 0
    problems: list[str] = field(default_factory=list)

    def show(self) -> None:
        """Print the problems, and how much was checked."""
        for problem in self.problems:
            print(f"tier: {problem}")
        count = len(self.problems)
        outcome = f"{count} problem{'s' if count > 1 else ''}" if count else "nothing is damaged"
        print(f"tier: {outcome}: checked {self.copies} copies of ledgers")


def add_arguments(
    parser: argparse.ArgumentParser, purpose: str = "check the copies in the object store, too"
) -> None:
    """Declare the flags.

    Args:
        parser: of a command.
        purpose: what it does with `--tier`.
    """
    parser.add_argument("--tier", action="store_true", help=purpose)
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="settings of the server, for offload.options"
    )
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="assignments",
        help="one setting of the server; may be repeated",
    )  # fmt: skip


def check_tier(
    store: StoppedStore,
    arguments: argparse.Namespace,
    make_check: Callable[[], CheckEntry],
    managed_ledger: str | None = None,
) -> TierReport:
    """Check what the tier should have.

    Args:
        store: whose ledgers it has.
        arguments: those of `add_arguments`.
        make_check: returns what checks the content of the entries of one copy, in order.
        managed_ledger: checks the copies of that one only; None: of all, and what belongs to none.

    Raises:
        SettingError: the settings have a mistake.
        UnreadableRow: the URL that the store remembers cannot be read.
    """
    offload = given_settings(arguments).offload
    check = _TierCheck(store.tier_listing(), offload, make_check)
    url = offload.url or remembered_url(store)
    return asyncio.run(check.run(managed_ledger, url))


class _TierCheck:
    def __init__(
        self,
        listing: TierListing,
        offload: OffloadSettings,
        make_check: Callable[[], CheckEntry],
    ) -> None:
        self._listing = listing
        self._options = offload.options
        self._make_check = make_check
        self._offloaders: dict[tuple[str, frozenset[tuple[str, str]]], LedgerOffloader | None] = {}
        self._report = TierReport()

    async def run(self, managed_ledger: str | None, url: str | None) -> TierReport:
        tiers = ObjectStoreTiers(self._options)
        try:
            for listed in self._listing.copies:
                if managed_ledger in (None, listed.managed_ledger):
                    await self._check(tiers, listed)
            if managed_ledger is None and url is not None:
                await self._check_strays(tiers, url)
        finally:
            await tiers.close()
        return self._report

    async def _check(self, tiers: ObjectStoreTiers, listed: ListedCopy) -> None:
        """Check one copy; a tier that cannot be reached is a problem of each."""
        self._report.copies += 1
        try:
            offloader = self._offloader(tiers, listed.copy.driver, listed.copy.location)
            if offloader is None:
                wrong: str | None = f"the tier {listed.copy.driver} is not one of an object store"
            else:
                wrong = await check_copy(listed, offloader, self._make_check())
        except (InvalidArgument, TierUnavailable) as error:
            wrong = f"cannot be read: {error}"
        if wrong is not None:
            partition = partition_of(listed.managed_ledger) or listed.managed_ledger
            only = ", its only copy" if listed.copy.primary_deleted else ""
            self._report.problems.append(
                f"{partition}, ledger {listed.record.ledger_id}{only}: {wrong}"
            )

    def _offloader(
        self, tiers: ObjectStoreTiers, driver: str, location: Mapping[str, str]
    ) -> LedgerOffloader | None:
        found = {name: text for name, text in location.items() if name != "folder"}
        key = (driver, frozenset(found.items()))
        if key not in self._offloaders:
            self._offloaders[key] = tiers.from_location(driver, location)
        return self._offloaders[key]

    async def _check_strays(self, tiers: ObjectStoreTiers, url: str) -> None:
        """List the objects and uploads that belong to no ledger, and manifests of no partition."""
        attempts = {str(attempt) for attempt in self._listing.attempts}
        manifests = set(self._manifests())
        try:
            offloader = tiers.from_url(url)
            stored = await offloader.stored()
            unfinished = await offloader.unfinished_uploads()
        except (InvalidArgument, TierUnavailable) as error:
            self._report.problems.append(f"{url}: cannot be listed: {error}")
            return
        for each in stored:
            name = each.name.rpartition("/")[2]
            is_known = (
                each.name in manifests
                if name == manifest.NAME
                else name.partition("-ledger-")[0] in attempts
            )
            if not is_known:
                self._report.problems.append(f"{url}: {each.name} belongs to no ledger")
        deleted = {str(each.attempt) for each in self._listing.deletions}
        for name in unfinished:
            if name.rpartition("/")[2].partition("-ledger-")[0] not in deleted:
                self._report.problems.append(f"{url}: an unfinished upload of {name} is left")

    def _manifests(self) -> Iterator[str]:
        """Return where there may be one: a deletion that is not completed may have left one."""
        for location in (
            *(listed.copy.location for listed in self._listing.copies),
            *(deletion.location for deletion in self._listing.deletions),
        ):
            yield f"{location.get('folder', '')}{manifest.NAME}"
