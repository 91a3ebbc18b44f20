"""Object store offloader: a tier in an object store.

Rule: the data object is written first and the index last, so that a copy without an index is none;
a delete removes the index first. All objects of a partition have one folder.
Must not know: managed ledgers, which copy is read.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import Corrupt, InvalidArgument, NonRecoverable
from kledger.ledger.offload.block_reads import BlockReads, BlockSource
from kledger.ledger.offload.object_layout import (
    LayoutWriter,
    data_name,
    index_name,
)
from kledger.ledger.offload.object_store import ObjectStore, StoredObject
from kledger.ledger.offload.object_store_options import (
    OBJECT_STORE,
    locating_options,
    options_elsewhere,
)
from kledger.ledger.offload.offloader import OffloadSource
from kledger.ledger.offload.tier_cache import TierCache
from kledger.runtime.blocking import BlockingRunner
from kledger.runtime.tasks import Supervisor

SOURCE_BYTES = 2 << 20
"""What is read from a ledger at once."""
STORES_MAX = 16
"""How many stores of earlier settings are open."""


class ObjectStores:
    """The store of the settings, and those in which earlier settings have put copies."""

    def __init__(self, url: str, options: Mapping[str, object], *, pool: BlockingRunner) -> None:
        """Make the store of the settings; raises as ObjectStore."""
        self.configured = ObjectStore(url, options, pool=pool)
        self._options = options
        self._pool = pool
        self._earlier: dict[tuple[tuple[str, str], ...], ObjectStore] = {}

    @property
    def location(self) -> dict[str, str]:
        """What finds the store of the settings after they have changed."""
        return {"url": self.configured.url, **locating_options(self._options)}

    def at(self, location: Mapping[str, str]) -> ObjectStore:
        """Return the store of a copy; with its credentials and options of today.

        The store of the settings is the one with its URL: an endpoint may have got another name.

        Raises:
            InvalidArgument: the location is not one of an object store, or needs other options.
        """
        url = location.get("url")
        if url is None:
            raise InvalidArgument(
                f"location of a copy: expected url, got {', '.join(sorted(location)) or 'nothing'}"
            )
        if url == self.configured.url:
            return self.configured
        locating = locating_options(location)
        key = tuple(sorted({"url": url, **locating}.items()))
        if key not in self._earlier:
            if len(self._earlier) >= STORES_MAX:
                del self._earlier[next(iter(self._earlier))]
            options = {**options_elsewhere(url, self._options), **locating}
            self._earlier[key] = ObjectStore(url, options, pool=self._pool)
        return self._earlier[key]

    async def close(self) -> None:
        """Wait for the end of cancelled uploads."""
        for store in (self.configured, *self._earlier.values()):
            await store.close()


class ObjectStoreOffloader:
    """A LedgerOffloader for the ledgers of one partition, or for all if it has no folder."""

    name = OBJECT_STORE

    def __init__(
        self, stores: ObjectStores, reads: BlockReads, *, pool: BlockingRunner, folder: str = ""
    ) -> None:
        """Make one; see `below`.

        Args:
            stores: of the server.
            reads: of the server.
            pool: for making blocks.
            folder: before the names of objects, with a slash at its end.
        """
        self._stores = stores
        self._reads = reads
        self._pool = pool
        self._folder = folder

    def below(self, path: str) -> "ObjectStoreOffloader":
        """Return the offloader of a partition.

        Args:
            path: of its folder, for example `public/default/orders-<topic id>/0`.
        """
        folder = f"{self._folder}{path.strip('/')}/"
        return ObjectStoreOffloader(self._stores, self._reads, pool=self._pool, folder=folder)

    @property
    def location(self) -> Mapping[str, str]:
        """See LedgerOffloader."""
        return {**self._stores.location, "folder": self._folder}

    async def offload(
        self, source: OffloadSource, attempt: UUID, location: Mapping[str, str]
    ) -> None:
        """See LedgerOffloader; in memory are at most the parts of an upload and two reads."""
        store, folder = self._at(location)
        writer = LayoutWriter(source.ledger_id, attempt)
        async with store.upload(folder + data_name(source.ledger_id, attempt)) as upload:
            await upload.write(writer.header())
            while writer.entries < source.entries:
                entries = await source.read(writer.entries, bytes_max=SOURCE_BYTES)
                for block in await self._pool.run(writer.add, entries):
                    await upload.write(block)
            if writer.entries > source.entries:
                raise Corrupt(
                    f"ledger {source.ledger_id}: expected {source.entries} entries, "
                    f"got {writer.entries}"
                )
            for block in await self._pool.run(writer.finish):
                await upload.write(block)
        index = writer.index().encode()
        await store.put(folder + index_name(source.ledger_id, attempt), index)

    async def open(
        self, ledger_id: int, attempt: UUID, location: Mapping[str, str]
    ) -> "ObjectTieredLedger":
        """See LedgerOffloader; costs one request unless the disk cache has the index."""
        store, folder = self._at(location)
        index = await self._reads.read_index(store, folder, ledger_id, attempt)
        return ObjectTieredLedger(BlockSource(store=store, folder=folder, index=index), self._reads)

    async def delete(self, ledger_id: int, attempt: UUID, location: Mapping[str, str]) -> None:
        """See LedgerOffloader."""
        store, folder = self._at(location)
        await store.delete(folder + index_name(ledger_id, attempt))
        await store.delete(folder + data_name(ledger_id, attempt))
        await self._reads.drop(attempt)

    async def abort_uploads(
        self, ledger_id: int, attempt: UUID, location: Mapping[str, str]
    ) -> None:
        """See UploadingOffloader."""
        store, folder = self._at(location)
        await store.abort_uploads(folder + data_name(ledger_id, attempt))

    def object_names(self, ledger_id: int, attempt: UUID) -> Mapping[str, str]:
        """Return the names of the objects of a copy in the folder, by what they are."""
        return {"data": data_name(ledger_id, attempt), "index": index_name(ledger_id, attempt)}

    # Other small objects of a partition

    async def put_whole(self, name: str, data: bytes) -> None:
        """Store a small object in the folder, replacing what has that name at once.

        Raises:
            TierUnavailable: it may or may not be stored.
        """
        await self._stores.configured.put(self._folder + name, data)

    async def get_whole(self, name: str) -> bytes | None:
        """Return a small object of the folder; None if there is none.

        Raises:
            TierUnavailable.
        """
        try:
            return bytes(await self._stores.configured.get(self._folder + name))
        except NonRecoverable:
            return None

    async def delete_whole(self, name: str) -> None:
        """Delete an object of the folder; what does not exist is no error.

        Raises:
            TierUnavailable: it may still be there.
        """
        await self._stores.configured.delete(self._folder + name)

    async def stored(self) -> Sequence[StoredObject]:
        """Return all objects in the folder and below; for checks.

        Raises:
            TierUnavailable.
        """
        return await self._stores.configured.list(self._folder)

    async def unfinished_uploads(self) -> Sequence[str]:
        """Return the objects in the store of which there are unfinished uploads; for checks.

        Raises:
            TierUnavailable.
        """
        return await self._stores.configured.unfinished_uploads()

    async def close(self) -> None:
        """Wait a few seconds for the end of cancelled uploads."""
        await self._stores.close()

    def _at(self, location: Mapping[str, str]) -> tuple[ObjectStore, str]:
        return self._stores.at(location), location.get("folder", "")


class ObjectTieredLedger:
    """A TieredLedger in an object store; in memory is its index."""

    def __init__(self, source: BlockSource, reads: BlockReads) -> None:
        self._source = source
        self._reads = reads

    @property
    def entries(self) -> int:
        """See TieredLedger."""
        return self._source.index.entries

    async def read(self, first: int, *, end: int, bytes_max: int) -> Sequence[Buffer]:
        """See TieredLedger."""
        if not 0 <= first < end <= self.entries:
            raise InvalidArgument(
                f"entries {first} to {end} of ledger {self._source.index.ledger_id}: "
                f"it has {self.entries}"
            )
        return await self._reads.read(self._source, first, end=end, bytes_max=bytes_max)

    async def close(self) -> None:
        """Do nothing: what is in memory is shared and limited."""


def block_reads(
    supervisor: Supervisor, pool: BlockingRunner, cache_folder: Path | None, cache_bytes: int
) -> BlockReads:
    """Return what all offloaders of a server read with; without a folder, without a disk cache."""
    cache = TierCache(cache_folder, cache_bytes, pool=pool) if cache_folder is not None else None
    return BlockReads(supervisor=supervisor, pool=pool, cache=cache)
