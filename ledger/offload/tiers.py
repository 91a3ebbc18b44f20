"""Tiers: the offloaders of one store, by URL and by the kind of tier.

Rule: one offloader for a URL. A copy is reached through the offloader of its kind: the one of its
managed ledger, else the one used last, else one that the factory makes from the texts stored with
the copy. The factory is called only when a tier is needed, as it may load a large library.
Must not know: managed ledgers, what a URL means.
"""

from collections.abc import Mapping
from typing import Protocol

from kledger.ledger.errors import InvalidArgument, TierUnavailable
from kledger.ledger.metadata.records import CopyDeletion, OffloadContext
from kledger.ledger.offload.offload_policies import OffloadPolicies
from kledger.ledger.offload.offloader import LedgerOffloader

OFFLOADERS_MAX = 1_000
"""URLs whose offloaders are kept."""


class OffloaderFactory(Protocol):
    """Makes the offloaders of a store."""

    def from_url(self, url: str) -> LedgerOffloader:
        """Return the tier of a URL.

        Raises:
            InvalidArgument: the URL, or an option of the tier, is not understood.
        """
        ...

    def from_location(self, name: str, location: Mapping[str, str]) -> LedgerOffloader | None:
        """Return a tier that reaches copies made earlier; None if there are no settings for it.

        Args:
            name: of the kind of tier.
            location: where it has the copy.
        """
        ...


class Tiers:
    """The offloaders of one store."""

    def __init__(self, factory: OffloaderFactory) -> None:
        self._factory = factory
        self._by_url: dict[str, LedgerOffloader] = {}
        self._by_name: dict[str, LedgerOffloader] = {}

    def resolved(self, policies: OffloadPolicies) -> OffloadPolicies:
        """Return policies whose driver is an offloader, or None.

        Raises:
            InvalidArgument: as `OffloaderFactory.from_url`.
        """
        driver = policies.driver
        if driver is None:
            return policies
        if isinstance(driver, str):
            driver = self._of_url(driver)
        self._by_name[driver.name] = driver
        return policies if driver is policies.driver else policies.with_driver(driver)

    def find(
        self, copy: OffloadContext | CopyDeletion, driver: LedgerOffloader | str | None = None
    ) -> LedgerOffloader:
        """Return the offloader that reaches a copy.

        Args:
            copy: says the kind of tier, and where the copy is.
            driver: of the managed ledger.

        Raises:
            TierUnavailable: no setting names a tier of that kind.
        """
        if driver is not None and not isinstance(driver, str) and driver.name == copy.driver:
            return driver
        offloader = self._by_name.get(copy.driver)
        if offloader is None:
            try:
                offloader = self._factory.from_location(copy.driver, copy.location)
            except InvalidArgument as error:
                raise TierUnavailable(f"tier {copy.driver}: {error}") from error
            if offloader is None:
                raise TierUnavailable(f"a copy is in tier {copy.driver}, which no setting names")
            self._by_name[copy.driver] = offloader
        return offloader

    def _of_url(self, url: str) -> LedgerOffloader:
        offloader = self._by_url.get(url)
        if offloader is None:
            if len(self._by_url) >= OFFLOADERS_MAX:
                self._by_url.clear()  # those in use are kept by their managed ledgers
            offloader = self._by_url[url] = self._factory.from_url(url)
        return offloader
