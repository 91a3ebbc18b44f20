"""Topics in a tier: what their manifests list, and their ledgers read by tasks.

Rule: only objects are read, and no server is asked. A manifest lists whole ledgers whose
transactions have ended, so what it lists is a consistent beginning of the partition. A part of an
object that is missing or damaged fails the read with the name of the object.
Must not know: Spark; how options choose offsets.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from kledger.batches.errors import CorruptBatch
from kledger.batches.header import BatchHeader, read_header
from kledger.batches.reader import iterate_times
from kledger.ledger import Corrupt
from kledger.ledger.offload.object_layout import LedgerIndex, decode_index
from kledger.spark.arrow_rows import arrow_rows
from kledger.spark.offset_range import EARLIEST, LATEST, KafkaPartition, OffsetRange
from kledger.spark.record_columns import decode_batches
from kledger.spark.source_options import InvalidOption, TierLocation
from kledger.spark.tier_store import TierFailed, TierStore

READ_BYTES: Final = 8 << 20
"""So many bytes of blocks are read with one request."""
_NAMESPACE: Final = "public/default"
_VERSION: Final = 1


class Aborted(NamedTuple):
    """An aborted transaction, up to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredLedgerInfo:
    """A ledger as a manifest lists it.

    Attributes:
        folder: of the partition, where its objects are.
        start: its first offset.
        end: the offset behind its last one.
        last_timestamp: the largest of its records.
        data: name of the object with the entries.
        index: name of the object that is their index.
    """

    where: KafkaPartition
    folder: str
    ledger_id: int
    start: int
    end: int
    last_timestamp: int
    data: str
    index: str
    aborted: tuple[Aborted, ...]


@dataclass(frozen=True, slots=True)
class LedgerSplit:
    """What one task reads: a part of the blocks of a ledger, and there a range of offsets."""

    ledger: TieredLedgerInfo
    start: int
    end: int
    part: int = 0
    parts: int = 1


class TieredTopics:
    """Partitions and offsets in a tier; it is asked as a `KafkaClient` is."""

    def __init__(self, location: TierLocation) -> None:
        """Open the store; manifests are read again with each call of `topics`."""
        self._store = TierStore(location)
        self._ledgers: dict[KafkaPartition, list[TieredLedgerInfo]] = {}

    def topics(self, names: Sequence[str] | None = None) -> dict[str, int]:
        """Return how many partitions topics have in the tier, and read their manifests.

        Args:
            names: of the topics; None for all that there are.

        Raises:
            InvalidOption: one is not in the tier.
            TierFailed: an object cannot be read, or is no manifest.
        """
        there = self._folders(names)
        missing = sorted(set(names or ()) - there.keys())
        if missing:
            raise InvalidOption(f"not in the tier at {self._store.url}: {', '.join(missing)}")
        found = {}
        for topic, folder in there.items():
            partitions = [int(each) for each in self._store.folders(folder) if each.isdecimal()]
            for partition in partitions:
                where = KafkaPartition(topic, partition)
                self._ledgers[where] = self._manifest(where, f"{folder}/{partition}")
            if any(self._ledgers[KafkaPartition(topic, each)] for each in partitions):
                found[topic] = max(partitions) + 1
        missing = sorted(set(names or ()) - found.keys())
        if missing:
            raise InvalidOption(f"not in the tier at {self._store.url}: {', '.join(missing)}")
        return found

    def offsets(
        self, times: Mapping[KafkaPartition, int], *, is_committed: bool
    ) -> dict[KafkaPartition, int]:
        """Return the first offset at or behind a time, in each partition; -1 where there is none.

        Args:
            times: milliseconds since 1970, or EARLIEST, or LATEST for the end.
            is_committed: all transactions in a tier have ended, so this changes nothing.
        """
        return {where: self._offset(where, time) for where, time in times.items()}

    def splits(self, ranges: list[OffsetRange], partitions_min: int | None) -> list[LedgerSplit]:
        """Divide ranges by ledgers, and these into parts if there are too few."""
        found = [
            LedgerSplit(ledger, max(each.start, ledger.start), min(each.end, ledger.end))
            for each in ranges
            for ledger in self._ledgers.get(each.where, ())
            if ledger.start < each.end and ledger.end > each.start
        ]
        parts = -(-(partitions_min or 0) // len(found)) if found else 1
        return (
            [
                LedgerSplit(split.ledger, split.start, split.end, part, parts)
                for split in found
                for part in range(parts)
            ]
            if parts > 1
            else found
        )

    def _offset(self, where: KafkaPartition, time: int) -> int:
        ledgers = self._ledgers.get(where, [])
        if time == EARLIEST:
            return ledgers[0].start if ledgers else 0
        if time == LATEST:
            return ledgers[-1].end if ledgers else 0
        for ledger in ledgers:
            if ledger.last_timestamp >= time:
                return _first_at(self._store, ledger, time)
        return -1

    def _folders(self, names: Sequence[str] | None) -> dict[str, str]:
        """Return the folder of each topic by its name."""
        if names is None:
            namespaces = [
                f"{tenant}/{namespace}"
                for tenant in self._store.folders("")
                for namespace in self._store.folders(tenant)
            ]
        else:
            namespaces = sorted({name.rpartition("/")[0] or _NAMESPACE for name in names})
        found: dict[str, str] = {}
        for namespace in namespaces:
            prefix = "" if namespace == _NAMESPACE else f"{namespace}/"
            for folder in self._store.folders(namespace):
                topic, _, topic_id = folder.rpartition("-")
                if not topic or len(topic_id) != len(UUID(int=0).hex):
                    continue
                name = prefix + topic
                if names is not None and name not in names:
                    continue
                if name in found:
                    raise TierFailed(f"{name} is in the tier twice: {found[name]} and {folder}")
                found[name] = f"{namespace}/{folder}"
        return found

    def _manifest(self, where: KafkaPartition, folder: str) -> list[TieredLedgerInfo]:
        name = f"{folder}/manifest.json"
        data = self._store.read(name)
        if data is None:
            return []
        try:
            manifest = json.loads(bytes(data))
            if manifest["version"] != _VERSION:
                raise TierFailed(f"{name}: expected version {_VERSION}, got {manifest['version']}")
            return [_ledger(where, folder, each) for each in manifest["ledgers"]]
        except (ValueError, KeyError, TypeError) as error:
            raise TierFailed(f"{name}: is no manifest: {error!r}") from None


def _ledger(where: KafkaPartition, folder: str, entry: dict[str, Any]) -> TieredLedgerInfo:
    return TieredLedgerInfo(
        where=where,
        folder=folder,
        ledger_id=entry["ledger_id"],
        start=entry["first_offset"],
        end=entry["last_offset"] + 1,
        last_timestamp=entry["last_timestamp"],
        data=entry["objects"]["data"],
        index=entry["objects"]["index"],
        aborted=tuple(
            Aborted(each["producer_id"], each["first_offset"], each["last_offset"])
            for each in entry["aborted"]
        ),
    )


def read_split(
    location: TierLocation, split: LedgerSplit, *, with_headers: bool, is_committed: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split.

    Raises:
        TierFailed: an object is missing, damaged, or cannot be read.
    """
    ledger, store = split.ledger, TierStore(location)
    aborted: dict[int, list[Aborted]] = {}
    for each in ledger.aborted if is_committed else ():
        aborted.setdefault(each.producer_id, []).append(each)

    def is_visible(header: BatchHeader) -> bool:
        if header.is_control or header.last_offset < split.start or header.base_offset >= split.end:
            return False
        return not header.is_transactional or not any(
            each.first_offset <= header.base_offset <= each.last_offset
            for each in aborted.get(header.producer_id, ())
        )

    for first, entries in _entries(store, ledger, split.part, split.parts):
        with _named(store, ledger):
            batches = [
                (number, header, entry)
                for number, entry in enumerate(entries, first)
                if is_visible(header := read_header(entry))
            ]
            entry_ids = np.array([number for number, _, _ in batches], dtype=np.int64)
            for columns in decode_batches(
                ((header, entry) for _, header, entry in batches),
                start=split.start, end=split.end, with_headers=with_headers,
            ):  # fmt: skip
                yield arrow_rows(
                    ledger.where, columns, ledger_id=ledger.ledger_id,
                    entry_id=entry_ids[columns.batch],
                )  # fmt: skip


@contextmanager
def _named(store: TierStore, ledger: TieredLedgerInfo) -> Iterator[None]:
    """Name the object in what is raised about its contents."""
    try:
        yield
    except (Corrupt, CorruptBatch, ValueError) as error:
        raise TierFailed(f"{store.url}: {ledger.folder}/{ledger.data}: {error}") from error


def _first_at(store: TierStore, ledger: TieredLedgerInfo, time: int) -> int:
    """Return the offset of the first record at or behind a time; the ledger has one."""
    for _, entries in _entries(store, ledger, 0, 1):
        for entry in entries:
            header = read_header(entry)
            if header.max_timestamp >= time and not header.is_control:
                for each in iterate_times(entry):
                    if each.timestamp >= time:
                        return each.offset
    return ledger.end


def _entries(
    store: TierStore, ledger: TieredLedgerInfo, part: int, parts: int
) -> Iterator[tuple[int, list[memoryview]]]:
    """Yield the entries of a part of the blocks, with the id of the first of them."""
    data_name, index_name = (f"{ledger.folder}/{name}" for name in (ledger.data, ledger.index))
    data = store.read(index_name)
    if data is None:
        raise TierFailed(f"{store.url}: {index_name} does not exist")
    with _named(store, ledger):
        index = decode_index(data, ledger.ledger_id, UUID(ledger.data.partition("-ledger-")[0]))
        blocks = range(index.blocks * part // parts, index.blocks * (part + 1) // parts)
        for run in _runs(index, blocks):
            start = index.offsets[run[0]]
            found = store.read_range(data_name, start, index.end_offset(run[-1]))
            entries: list[memoryview] = []
            for block in run:
                end = index.end_offset(block) - start
                block_bytes = found[index.offsets[block] - start : end]
                entries += [memoryview(each) for each in index.decode_block(block, block_bytes)]
            yield index.first_entries[run[0]], entries


def _runs(index: LedgerIndex, blocks: range) -> Iterator[list[int]]:
    """Divide blocks into runs that are read with one request each."""
    run: list[int] = []
    for block in blocks:
        if run and index.end_offset(block) - index.offsets[run[0]] > READ_BYTES:
            yield run
            run = []
        run.append(block)
    if run:
        yield run
