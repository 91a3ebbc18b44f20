"""A tier in memory with a folder for each partition, for tests of topics and of what uses them."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from kledger.ledger import InvalidArgument, LedgerOffloader, TierUnavailable
from kledger.ledger.testing import MemoryCopy, MemoryTier


class MemoryFolder(MemoryTier):
    """The folder of one partition.

    Attributes:
        objects: small ones, by name.
        writes: how many small objects were written or deleted.
        hangs: whether calls about small objects never end.
    """

    def __init__(self, path: str, folders: "MemoryFolders") -> None:
        super().__init__(location={"folder": path})
        self._folders = folders
        self.objects: dict[str, bytes] = {}
        self.writes = 0
        self.hangs = False
        self._hanging = asyncio.Event()

    def object_names(self, ledger_id: int, attempt: UUID) -> Mapping[str, str]:
        """See PartitionTier."""
        name = f"{attempt}-ledger-{ledger_id}"
        return {"data": name, "index": f"{name}-index"}

    async def open(self, ledger_id: int, attempt: UUID, location: Mapping[str, str]) -> MemoryCopy:
        """See LedgerOffloader; the copy may be in another folder."""
        return await MemoryTier.open(self._at(location), ledger_id, attempt, location)

    async def delete(self, ledger_id: int, attempt: UUID, location: Mapping[str, str]) -> None:
        """See LedgerOffloader; the copy may be in another folder."""
        await MemoryTier.delete(self._at(location), ledger_id, attempt, location)

    def _at(self, location: Mapping[str, str]) -> "MemoryFolder":
        return self._folders.below(location["folder"])

    async def put_whole(self, name: str, data: bytes) -> None:
        """See PartitionTier."""
        await self._check_up()
        self.objects[name] = data

    async def delete_whole(self, name: str) -> None:
        """See PartitionTier."""
        await self._check_up()
        self.objects.pop(name, None)

    async def _check_up(self) -> None:
        if self.hangs:
            self._hanging.set()
            await asyncio.Event().wait()
        if self.is_down:
            raise TierUnavailable("the tier is down")
        self.writes += 1

    async def wait_hanging(self) -> None:
        """Wait until a call has begun that never ends, since this was called last."""
        async with asyncio.timeout(60):
            await self._hanging.wait()
        self._hanging.clear()

    @property
    def manifest(self) -> dict[str, Any] | None:
        """The manifest, if there is one."""
        data = self.objects.get("manifest.json")
        return None if data is None else json.loads(data)


class MemoryFolders:
    """The tier of a server."""

    def __init__(self) -> None:
        self.folders: dict[str, MemoryFolder] = {}

    def below(self, path: str) -> MemoryFolder:
        """See Tier."""
        return self.folders.setdefault(path, MemoryFolder(path, self))

    # OffloaderFactory

    def from_url(self, url: str) -> LedgerOffloader:
        """See OffloaderFactory; nobody asks for it."""
        raise InvalidArgument(f"url: expected none, got {url}")

    def from_location(self, name: str, location: Mapping[str, str]) -> LedgerOffloader | None:
        """See OffloaderFactory."""
        return self.below(location["folder"])

    @property
    def only(self) -> MemoryFolder:
        """The folder that is used, if there is just one."""
        (found,) = self.used()
        return found

    def used(self) -> Iterator[MemoryFolder]:
        """Yield the folders that have something."""
        return (each for each in self.folders.values() if each.copies or each.objects)

    def set_down(self, is_down: bool) -> None:
        """Let every call fail, or no more."""
        for each in self.folders.values():
            each.is_down = is_down
