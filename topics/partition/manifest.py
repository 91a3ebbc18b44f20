"""Manifest: what a reader without a server needs to know of the ledgers of a partition in the tier.

Rule: it lists whole ledgers, oldest first and without a gap, up to the first that is not offloaded;
all of their transactions have ended. Its fingerprint changes with the copies that it lists.
Must not know: how it is stored.

    {"version": 1, "topic": …, "topic_id": …, "partition": …, "ledgers": [
        {"ledger_id": …, "entries": …, "bytes": …, "first_offset": …, "last_offset": …,
         "first_timestamp": …, "last_timestamp": …,           smallest and largest of its records
         "objects": {"data": …, "index": …},                  names beside the manifest
         "aborted": [{"producer_id": …, "first_offset": …,
                      "last_offset": …}, …]}, …]}             of the transaction's marker
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from kledger.batches.checksum import crc32c
from kledger.ledger import LedgerInfo
from kledger.topics.partition.offset_index import LedgerSummary
from kledger.topics.partition.transaction_state import AbortedTransaction

NAME = "manifest.json"
VERSION = 1
NOT_KNOWN = -1
"""As a fingerprint: no manifest has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSource:
    """What the manifest of a partition is made of.

    Attributes:
        topic: its resolved name.
        ledgers: those that the manifest lists, see `listed`.
        summaries: by ledger id.
        aborted: at least the transactions with records in these ledgers.
        object_names: returns the names of the objects of a copy.
    """

    topic: str
    topic_id: UUID
    partition: int
    ledgers: Sequence[LedgerInfo]
    summaries: Mapping[int, LedgerSummary]
    aborted: Sequence[AbortedTransaction]
    object_names: Callable[[int, UUID], Mapping[str, str]]


def listed(ledgers: Sequence[LedgerInfo], location: Mapping[str, str]) -> list[LedgerInfo]:
    """Return the ledgers that the manifest at a location lists.

    Args:
        ledgers: all, oldest first.
        location: of the partition's folder; copies that an earlier setting has put elsewhere are
            left out, and so is what comes before them.
    """
    found: list[LedgerInfo] = []
    for info in ledgers:
        if not info.entries and info.closed_ms is not None:
            continue
        if not info.offloaded or info.offload is None:
            break
        if _place(info.offload.location) == _place(location):
            found.append(info)
        else:
            found.clear()
    return found


def _place(location: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return what identifies a folder, without the endpoint of its URL, which may be renamed."""
    return location.get("url"), location.get("folder")


def fingerprint(ledgers: Sequence[LedgerInfo]) -> int:
    """Return a number that differs between manifests of different ledgers and copies."""
    crc = 0
    for info in ledgers:
        assert info.offload is not None, f"ledger {info.ledger_id} is not offloaded"
        crc = crc32c(b"%d/" % info.ledger_id + info.offload.attempt.bytes, crc)
    return crc


def build_manifest(source: ManifestSource, first_timestamps: Mapping[int, int]) -> bytes:
    """Return the manifest as JSON.

    Args:
        source: of the partition.
        first_timestamps: by ledger id.
    """
    ledgers = [_entry(source, info, first_timestamps) for info in source.ledgers]
    manifest = {
        "version": VERSION,
        "topic": source.topic,
        "topic_id": source.topic_id.hex,
        "partition": source.partition,
        "ledgers": ledgers,
    }
    return json.dumps(manifest, separators=(",", ":")).encode()


def _entry(
    source: ManifestSource, info: LedgerInfo, first_timestamps: Mapping[int, int]
) -> dict[str, object]:
    summary = source.summaries[info.ledger_id]
    assert info.offload is not None, f"ledger {info.ledger_id} is not offloaded"
    return {
        "ledger_id": info.ledger_id,
        "entries": info.entries,
        "bytes": info.size,
        "first_offset": summary.first_offset,
        "last_offset": summary.next_offset - 1,
        "first_timestamp": first_timestamps.get(info.ledger_id, summary.max_timestamp),
        "last_timestamp": summary.max_timestamp,
        "objects": dict(source.object_names(info.ledger_id, info.offload.attempt)),
        "aborted": [
            {
                "producer_id": each.producer_id,
                "first_offset": each.first_offset,
                "last_offset": each.last_offset,
            }
            for each in source.aborted
            if each.first_offset < summary.next_offset and each.last_offset >= summary.first_offset
        ],
    }
