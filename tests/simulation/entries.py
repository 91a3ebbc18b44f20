"""Entries: bytes that identify the write they come from, plain ones and record batches.

Rule: no two writes have equal bytes, so that a read identifies the write.
Must not know: what is done with them.
"""

from collections.abc import Sequence

from kledger.batches.builder import NewRecord, build_batch
from kledger.ledger import Buffer

_OFFSET_SIZE = 8
_TIME_MS = 1_000_000

Key = bytes | None


def plain(serial: int, size: int) -> bytes:
    """Return an entry that is no batch."""
    return b"%d:" % serial + b"." * size


def batch(serial: int, keys: Sequence[Key]) -> bytes:
    """Return a batch with a record for every key; its base offset is the number of the write."""
    records = [NewRecord(b"%d" % at, key=key, timestamp=_TIME_MS) for at, key in enumerate(keys)]
    return bytes(build_batch(records, base_offset=serial))


def serial_of(data: Buffer) -> int | None:
    """Return the number of the write with these bytes; None if there is none."""
    head = bytes(data[:_OFFSET_SIZE])
    if head[:1] == b"\0":
        return int.from_bytes(head, "big")
    number, colon, _ = bytes(data).partition(b":")
    return int(number) if colon and number.isdigit() else None
