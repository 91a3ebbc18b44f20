"""Entry view: what a dispatcher reads of a stored batch: record count, key hashes, delivery time.

Rule: nothing is decoded that the type of the subscription does not need. A damaged batch is
delivered like any other: the client finds the damage. What scans keys may run in another process,
so loading this module is cheap.
Must not know: consumers, cursors.
"""

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

from kledger.batches.buffers import Buffer
from kledger.batches.errors import BatchError
from kledger.batches.header import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    FLAGS_AT,
    read_header,
    read_offset_count,
    read_record_count,
)
from kledger.batches.pacing import Pause, no_pause
from kledger.batches.reader import iterate_fields, opened_body
from kledger.batches.record import headers_start, read_header_values, read_varint

if TYPE_CHECKING:
    from kledger.ledger import Position

KEY_HASH_COUNT = 65_536
"""Keys have hashes 1 to 65,535; no key has hash 0. Source: Pulsar's sticky key ranges."""

DELIVER_AT = "kledger.deliver-at"
"""The header with the time, in ms as decimal digits, before which a record is not delivered. Only
the single record of an uncompressed batch is delayed by it."""

DIGITS_MAX = 15
"""A longer number is no time: it would be 30,000 years away, further than timers reach."""

RECORDS_MAX = 1 << 20
"""A header that claims more records is damaged."""

MASK_BITS_MAX = 1 << 27
"""An entry has a mask for each key hash, of as many bits as it has records; in all at most 16 MiB.
Ten thousand records of as many keys stay below."""

COST_UNKNOWN = 1 << 62

RecordsByKeyHash: TypeAlias = tuple[tuple[int, int], ...]
"""The records of an entry by key hash: (key hash, mask), each key hash once."""

_DELIVER_AT_BYTES = DELIVER_AT.encode()
_SEARCHED_SIZE_MAX = 4096


def record_count(data: Buffer) -> int:
    """Return how many records an entry has; an entry that is no batch counts as one record."""
    if len(data) < BATCH_OVERHEAD:
        return 1
    count = read_record_count(data)
    return min(max(count, 1), RECORDS_MAX)


def index_count(data: Buffer) -> int:
    """Return how many records an entry was appended with; compaction may have removed some."""
    count = record_count(data)
    if len(data) < BATCH_OVERHEAD:
        return count
    return min(max(count, read_offset_count(data)), RECORDS_MAX)


def indexes_of(records: int) -> list[int]:
    """Return the indexes of the records in a mask, ascending."""
    digits = bin(records)[:1:-1]
    return [index for index, digit in enumerate(digits) if digit == "1"]


def mask_of(indexes: Iterable[int]) -> int:
    """Return the mask of some records of an entry."""
    bits = bytearray()
    for index in indexes:
        byte = index >> 3
        if byte >= len(bits):
            bits.extend(bytes(byte + 1 - len(bits)))
        bits[byte] |= 1 << (index & 7)
    return int.from_bytes(bits, "little")


def key_hash_of(key: Buffer) -> int:
    """Return the hash of a key, 1 to 65,535."""
    return crc32(key) % (KEY_HASH_COUNT - 1) + 1


def key_scan_cost(data: Buffer) -> int:
    """Return how many bytes `records_by_key_hash` reads; a compressed batch may hold any number."""
    is_compressed = len(data) >= BATCH_OVERHEAD and data[FLAGS_AT] & CODEC_MASK
    return COST_UNKNOWN if is_compressed else len(data)


def kept_scan_cost(data: Buffer, leaves_removals: bool) -> int:
    """Return how many bytes `kept_records` reads; see `key_scan_cost`."""
    if leaves_removals and (len(data) < BATCH_OVERHEAD or not _lacks_records(data)):
        return 0
    return key_scan_cost(data)


def kept_records(data: Buffer, leaves_removals: bool, pause: Pause = no_pause) -> int:
    """Return which records of an entry a compaction has kept, by their offsets in the batch.

    Args:
        data: the entry, as it was kept; all records of a damaged one.
        leaves_removals: whether records that remove their key are among them.
        pause: see `batches.pacing`.
    """
    everything = (1 << index_count(data)) - 1
    if not kept_scan_cost(data, leaves_removals):
        return everything
    kept: list[int] = []
    try:
        header = read_header(data)
        if not header.record_count:
            return 0
        with opened_body(data, header, pause=pause) as body:
            for fields in iterate_fields(body, header.record_count, pause):
                if not leaves_removals:
                    value_at = fields.key_start + max(fields.key_size, 0)
                    if read_varint(body, value_at)[0] <= 0:
                        continue
                kept.append(fields.offset_delta)
    except BatchError:
        return everything
    return mask_of(kept) & everything


def _lacks_records(data: Buffer) -> bool:
    return read_record_count(data) != read_offset_count(data)


def keyless_hash_of(position: "Position") -> int:
    """Return the hash of the records without a key in an entry, which spreads entries."""
    return key_hash_of(b"%d:%d" % position)


def all_records_of(data: Buffer, key_hash: int) -> RecordsByKeyHash:
    """Return all records of an entry under one key hash."""
    return ((key_hash, (1 << record_count(data)) - 1),)


def records_by_key_hash(data: Buffer, keyless: int, pause: Pause = no_pause) -> RecordsByKeyHash:
    """Return the key hashes of the records of an entry.

    Records without a key get the hash `keyless`. So do all records of an entry that cannot be
    decoded, or that has too many records of too many keys.
    """
    if len(data) < BATCH_OVERHEAD:
        return ((keyless, 1),)
    found: dict[int, array[int]] = {}
    try:
        header = read_header(data)
        with opened_body(data, header, pause=pause) as body:
            for index, fields in enumerate(iterate_fields(body, header.record_count, pause)):
                start, size = fields.key_start, fields.key_size
                key_hash = keyless if size < 0 else key_hash_of(body[start : start + size])
                indexes = found.get(key_hash)
                if indexes is None:
                    indexes = found[key_hash] = array("I")
                    if len(found) * header.record_count > MASK_BITS_MAX:
                        return all_records_of(data, keyless)
                indexes.append(index)
    except BatchError:
        return all_records_of(data, keyless)
    return tuple((key_hash, mask_of(indexes)) for key_hash, indexes in found.items())


def deliver_at_cost(data: Buffer) -> int:
    """Return how many bytes `deliver_at_ms` decodes; 0 when there is certainly no such time.

    A search for the header's bytes comes first: it is much cheaper than decoding headers.
    """
    size = len(data)
    if size < BATCH_OVERHEAD or data[FLAGS_AT] & CODEC_MASK:
        return 0
    if size <= _SEARCHED_SIZE_MAX:
        return size if _DELIVER_AT_BYTES in bytes(data) else 0
    try:
        header = read_header(data)
        body = memoryview(data)[BATCH_OVERHEAD : header.size]
        fields = next(iterate_fields(body, 1))
        headers = bytes(body[headers_start(body, fields) : fields.end])
    except BatchError:
        return 0
    return len(headers) if _DELIVER_AT_BYTES in headers else 0


def deliver_at_ms(data: Buffer, pause: Pause = no_pause) -> int | None:
    """Return the time before which an entry of one record is not delivered; None: any time."""
    if not deliver_at_cost(data):
        return None
    try:
        header = read_header(data)
        body = memoryview(data)[BATCH_OVERHEAD : header.size]
        for fields in iterate_fields(body, header.record_count):
            for value in read_header_values(body, fields, _DELIVER_AT_BYTES, pause):
                if value is not None and _is_time(value):
                    return int(value)
    except BatchError:
        return None
    return None


def _is_time(text: bytes) -> bool:
    return text.isdigit() and len(text) <= DIGITS_MAX
