"""Words of the tests of tiers: sources of entries, and folders that count requests."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import LedgerError
from kledger.ledger.offload.object_layout import LayoutWriter, LedgerIndex
from kledger.ledger.offload.object_store import ObjectStore
from kledger.runtime.blocking import BlockingRunner

FIRST = UUID(int=1)
SECOND = UUID(int=2)
LEDGER = 7


@dataclass
class ListSource:
    """A closed ledger in a list; `error` is raised at the entry `fails_at`."""

    data: Sequence[Buffer]
    ledger_id: int = LEDGER
    fails_at: int | None = None
    error: Exception | None = None

    @property
    def entries(self) -> int:
        return len(self.data)

    @property
    def size(self) -> int:
        return sum(map(len, self.data))

    async def read(self, first: int, *, bytes_max: int) -> Sequence[Buffer]:
        found: list[Buffer] = []
        for entry in self.data[first:]:
            if self.fails_at == first + len(found) and self.error is not None:
                raise self.error
            if found and sum(map(len, found)) + len(entry) > bytes_max:
                break
            found.append(entry)
        return found


def numbered(count: int, size: int = 100) -> list[Buffer]:
    """Entries that differ."""
    return [b"%d:" % number + bytes([number % 251]) * size for number in range(count)]


def written(
    entries: Sequence[Buffer],
    *,
    ledger_id: int = LEDGER,
    attempt: UUID = FIRST,
    block_bytes: int = 1000,
    extra: bytes = b"",
) -> tuple[bytes, LedgerIndex]:
    """A data object and its index."""
    writer = LayoutWriter(ledger_id, attempt, block_bytes=block_bytes)
    data = b"".join([writer.header(), *writer.add(entries), *writer.finish()])
    return data, writer.index(extra)


def entries_of(data: Buffer, index: LedgerIndex) -> list[bytes]:
    """All entries of a data object."""
    view = memoryview(data)
    return [
        bytes(entry)
        for block in range(index.blocks)
        for entry in index.decode_block(block, view[index.offsets[block] : index.end_offset(block)])
    ]


class CountingStore(ObjectStore):
    """A store that notes its requests, and holds or fails them.

    Attributes:
        requests: (name, start, length) of ranges, (name, 0, -1) of whole objects.
        errors: raised by the next requests, one each.
        hold: requests wait while it is not set.
    """

    def __init__(self, url: str, *, pool: BlockingRunner) -> None:
        super().__init__(url, pool=pool)
        self.requests: list[tuple[str, int, int]] = []
        self.errors: list[LedgerError] = []
        self.hold = asyncio.Event()
        self.hold.set()

    async def get(self, name: str) -> Buffer:
        await self._note(name, 0, -1)
        return await super().get(name)

    async def get_range(self, name: str, start: int, length: int) -> Buffer:
        await self._note(name, start, length)
        return await super().get_range(name, start, length)

    async def _note(self, name: str, start: int, length: int) -> None:
        self.requests.append((name, start, length))
        await self.hold.wait()
        if self.errors:
            raise self.errors.pop(0)
