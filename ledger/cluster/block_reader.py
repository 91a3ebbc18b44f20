"""Block reader: entries from the blocks that have them: inline, in memory or in an object.

Rule: neighbouring blocks of one object are one GET; GETs of several objects run concurrently. A
committed object must exist, so a missing one is requested again for `MISSING_MS`; then the read
fails, and no entry is ever skipped. If blocks were moved during a read, they are looked up again.
Must not know: the committer, the database.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from kledger.ledger.cluster.database import WalGroup
from kledger.ledger.cluster.group_log import GroupLog
from kledger.ledger.cluster.object_format import ObjectDamaged, WalBlock, decode_block
from kledger.ledger.cluster.wal_index import BlockLocation
from kledger.ledger.cluster.wal_objects import ObjectMissing, ObjectStoreFailed, WalObjects
from kledger.ledger.engine.base import Buffer
from kledger.ledger.engine.errors import EntryCorrupt, EntryMissing, StorageError

MISSING_MS = 10_000
MISSING_STEP_MS = 250
REQUESTS_MAX = 64
"""Objects that one read asks for; a reader of many small blocks gets less than it wants."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Neighbouring blocks of one file."""

    file: int
    blocks: list[WalBlock]

    @property
    def start(self) -> int:
        return self.blocks[0].position

    @property
    def length(self) -> int:
        return self.blocks[-1].position + self.blocks[-1].size - self.start


class BlockReader:
    """For any thread."""

    def __init__(self, log: GroupLog, objects: WalObjects) -> None:
        self.gets = self.get_bytes = 0
        self._log = log
        self._objects = objects

    def read(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer]:
        """Return entries in order from `first_entry`, as `StorageEngine.read` does.

        Raises:
            EntryMissing, EntryCorrupt: as there.
            StorageError: the object store has failed, or lacks an object.
        """
        waited_ms = 0
        before: list[BlockLocation] = []
        while True:
            locations = self._log.locations(ledger_id, first_entry, last_entry, bytes_max)
            if not locations:
                raise EntryMissing(ledger_id, first_entry)
            try:
                blocks = self._blocks(locations)
            except (ObjectMissing, _GroupForgotten) as error:
                if locations == before:
                    if waited_ms >= MISSING_MS:
                        raise StorageError(f"{error} (asked for {MISSING_MS} ms)") from error
                    self._objects.wait((), MISSING_STEP_MS)
                    waited_ms += MISSING_STEP_MS
                before = locations
                continue
            except ObjectStoreFailed as error:
                raise StorageError(str(error)) from error
            return self._entries(locations, blocks, first_entry, last_entry, bytes_max)

    def read_resident(
        self, ledger_id: int, first_entry: int, last_entry: int, bytes_max: int
    ) -> list[Buffer] | None:
        """Return the same without a request; None if one is needed."""
        locations = self._log.locations(ledger_id, first_entry, last_entry, bytes_max)
        try:
            blocks = [self._resident(location) for location in locations]
        except _GroupForgotten:
            return None
        known = [data for data in blocks if data is not None]
        if not known or len(known) < len(blocks):
            return None
        return self._entries(locations, known, first_entry, last_entry, bytes_max)

    def _blocks(self, locations: list[BlockLocation]) -> list[Buffer]:
        """Return the bytes of blocks, of as many as a read may ask for."""
        found = {location: self._resident(location) for location in locations}
        missing = [location for location, data in found.items() if data is None]
        requests = [(each, self._begin(each)) for each in _ranges(missing)[:REQUESTS_MAX]]
        for wanted, request in requests:
            data = memoryview(request.result())
            self.gets += 1
            self.get_bytes += len(data)
            for block in wanted.blocks:
                location = BlockLocation(wanted.file, block)
                start = block.position - wanted.start
                # A copy: a view would keep all of what the request has read in memory.
                found[location] = copied = bytes(data[start : start + block.size])
                self._log.cache.put_block(location, copied)
        blocks: list[Buffer] = []
        for bytes_found in found.values():
            if bytes_found is None:
                break  # behind the last request
            blocks.append(bytes_found)
        return blocks

    def _begin(self, wanted: _Range) -> "Future[Buffer]":
        group = self._group_at(wanted.file)
        assert group.object_key is not None, "inline bytes are resident"
        return self._objects.begin_get(group.object_key, group.at + wanted.start, wanted.length)

    def _resident(self, location: BlockLocation) -> Buffer | None:
        file, block = location
        inline = self._group_at(file).inline
        if inline is not None:
            return memoryview(inline)[block.position : block.position + block.size]
        return self._log.cache.block(location)

    def _group_at(self, file: int) -> WalGroup:
        group = self._log.group_at(file)
        if group is None:
            raise _GroupForgotten(f"group {file:#x} is not there any more")
        return group

    def _entries(
        self,
        locations: Sequence[BlockLocation],
        blocks: Sequence[Buffer],
        first_entry: int,
        last_entry: int,
        bytes_max: int,
    ) -> list[Buffer]:
        """Decode blocks up to the last requested entry."""
        found: list[Buffer] = []
        size = 0
        for (file, block), data in zip(locations, blocks, strict=False):
            try:
                entries = decode_block(data, self._name_of(file), block)
            except ObjectDamaged as error:
                if found:
                    break  # the next read begins with this block and raises
                entry_id = max(first_entry, block.first)
                raise EntryCorrupt(block.ledger_id, entry_id, str(error)) from error
            start = max(0, first_entry - block.first)
            for entry in entries[start : last_entry + 1 - block.first]:
                size += len(entry)
                if found and size > bytes_max:
                    return found
                found.append(entry)
        return found

    def _name_of(self, file: int) -> str:
        group = self._log.group_at(file)
        return (group and group.object_key) or f"group {file:#x}"


class _GroupForgotten(Exception):
    """Everything in a group was moved or dropped since its blocks were looked up."""


def _ranges(locations: Sequence[BlockLocation]) -> list[_Range]:
    """Put neighbouring blocks together."""
    ranges: list[_Range] = []
    for file, block in locations:
        last = ranges[-1] if ranges else None
        if last and last.file == file and last.start + last.length == block.position:
            last.blocks.append(block)
        else:
            ranges.append(_Range(file, [block]))
    return ranges
