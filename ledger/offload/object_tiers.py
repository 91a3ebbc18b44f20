"""Object tiers: makes the offloaders of a server for object stores.

Rule: nothing is loaded or started before the first offloader is made, so that a server without a
tier pays nothing. The threads, the memory and the disk cache of tiers are one for all offloaders,
and nothing else uses them.
Must not know: managed ledgers.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kledger.ledger.errors import InvalidArgument
from kledger.ledger.offload.object_store_options import (
    OBJECT_STORE,
    checked_options,
    locating_options,
    options_elsewhere,
)
from kledger.runtime.blocking import BlockingPool, BlockingRunner
from kledger.runtime.containment import Containment
from kledger.runtime.tasks import Supervisor

if TYPE_CHECKING:
    from kledger.ledger.offload.block_reads import BlockReads
    from kledger.ledger.offload.object_offloader import ObjectStoreOffloader

CACHE_BYTES = 256 << 20
THREADS = 2
"""For the disk cache, and for making and verifying blocks."""


class ObjectStoreTiers:
    """An OffloaderFactory for URLs of object stores."""

    def __init__(
        self,
        options: Mapping[str, object] | None = None,
        *,
        cache_folder: Path | None = None,
        cache_bytes: int = CACHE_BYTES,
        containment: Containment | None = None,
        pool: BlockingRunner | None = None,
    ) -> None:
        """Make a factory; options are checked with the URL that they are for.

        Args:
            options: of all stores, see ObjectStore.
            cache_folder: of the disk cache, which is made when it is needed; None for none.
            cache_bytes: its limit; 0 caches nothing.
            containment: handles unexpected errors of requests.
            pool: instead of threads of its own.
        """
        if cache_bytes < 0:
            raise InvalidArgument(f"cache_bytes: expected at least 0, got {cache_bytes}")
        self._options = dict(options or {})
        self._cache_folder = cache_folder if cache_bytes else None
        self._cache_bytes = cache_bytes
        self._pool = pool or BlockingPool(THREADS)
        self._supervisor = Supervisor(containment=containment)
        self._reads: BlockReads | None = None
        self._offloaders: list[ObjectStoreOffloader] = []

    def check(self, url: str) -> None:
        """Check a URL and the options without loading the library.

        Raises:
            InvalidArgument: as `from_url`, for errors that show without a request.
        """
        checked_options(url, self._options)

    def from_url(self, url: str) -> "ObjectStoreOffloader":
        """Return an offloader for a URL; `below` of it gives those of partitions.

        Raises:
            InvalidArgument: the URL or an option is not valid.
        """
        return self._offloader(url, self._options)

    def from_location(
        self, name: str, location: Mapping[str, str]
    ) -> "ObjectStoreOffloader | None":
        """Return an offloader for copies of earlier settings; None for other kinds of tiers.

        Raises:
            InvalidArgument: the location, with the options of today, is not valid.
        """
        if name != OBJECT_STORE or "url" not in location:
            return None
        url = location["url"]
        return self._offloader(
            url, {**options_elsewhere(url, self._options), **locating_options(location)}
        )

    def _offloader(self, url: str, options: Mapping[str, object]) -> "ObjectStoreOffloader":
        from kledger.ledger.offload import object_offloader as late  # noqa: PLC0415 - see the rule

        if self._reads is None:
            self._reads = late.block_reads(
                self._supervisor, self._pool, self._cache_folder, self._cache_bytes
            )
        stores = late.ObjectStores(url, options, pool=self._pool)
        offloader = late.ObjectStoreOffloader(stores, self._reads, pool=self._pool)
        self._offloaders.append(offloader)
        return offloader

    async def close(self) -> None:
        """Cancel reads, wait a few seconds for the end of cancelled uploads, end the threads."""
        await self._supervisor.close()
        for offloader in self._offloaders:
            await offloader.close()
        self._pool.close()
