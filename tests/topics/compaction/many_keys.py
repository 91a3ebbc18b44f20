"""Batches of very many keys, made quickly; and the memory of the process that reads them."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.header import BATCH_OVERHEAD, HEADER_STRUCT, read_header, refresh_checksum
from kledger.batches.pacing import Pause

RECORDS_PER_BATCH = 1000
_MARK = b"0123456789"


def batches_of(numbers: Sequence[int], base_offset: int, value: bytes = b"v") -> Iterator[bytes]:
    """Yield batches with a key of ten digits for each number; all offset deltas are 0."""
    template = build_batch([NewRecord(value, key=_MARK)])
    before, after = bytes(template[BATCH_OVERHEAD:]).split(_MARK)
    record = before.replace(b"%", b"%%") + b"%010d" + after.replace(b"%", b"%%")
    for start in range(0, len(numbers), RECORDS_PER_BATCH):
        some = numbers[start : start + RECORDS_PER_BATCH]
        body = b"".join([record % number for number in some])
        header = read_header(template)._replace(
            base_offset=base_offset + start,
            batch_length=BATCH_OVERHEAD + len(body) - 12,
            last_offset_delta=len(some) - 1,
            record_count=len(some),
        )
        batch = bytearray(HEADER_STRUCT.pack(*header)) + body
        refresh_checksum(batch)
        yield bytes(batch)


def peak_memory_bytes(state: object, data: memoryview, sizes: Sequence[int], pause: Pause) -> int:
    """Return the largest resident memory that the process has had; of a session.

    `getrusage` would include what the parent had when it started this process.
    """
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024
