"""Record heads: keys and tombstones of the records of many batches, found for all of them at once.

Rule: where a record begins is known from the length of the one before, so a walk over the lengths
comes first; records that are as long as the one before are counted in one step. All else is read
for thousands of records at a time. Only what is read as `read_keys` would read it is returned; for
anything else, damage too, the answer is None, and `read_keys` says what it is.
Must not know: batches, codecs, what becomes of a record.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kledger.batches.buffers import Buffer
from kledger.batches.errors import CorruptBatch
from kledger.batches.record import VARINT_SIZE_MAX, read_varint, rest_of_varint

_RUN_MIN = 16
"""Records of the same length that are worth the search for their number."""
_RUN_WINDOW = 64
_RUN_WINDOW_GROWTH = 8
_RUN_DOUBT_MAX = 4095
_LOW_BITS = np.uint64(0x7F)
_ONE = np.uint64(1)


class RecordHeads(NamedTuple):
    """What is known of consecutive records.

    Attributes:
        key_starts: where the keys begin that are not null.
        key_sizes: of these keys.
        keyless: indices of the records whose key is null.
        tombstones: indices of other records whose value is null.
    """

    key_starts: NDArray[np.int64]
    key_sizes: NDArray[np.int64]
    keyless: NDArray[np.int64]
    tombstones: NDArray[np.int64]


def is_regular(octets: NDArray[np.uint8], count: int) -> bool:
    """Tell whether half of the first records of a batch, and more, are as long as the first."""
    size, position = read_varint(octets[:VARINT_SIZE_MAX].tobytes(), 0)
    step = position + size
    return 2 * _run_length(octets, 0, step, octets[:position].tobytes(), count) > count


def walk_records(
    body: Buffer, octets: NDArray[np.uint8], position: int, count: int
) -> NDArray[np.int64] | None:
    """Return where each of consecutive records begins, and where the last one ends.

    Args:
        body: with the records.
        octets: the same bytes.
        position: of the first record.
        count: how many, at least one.

    Returns:
        None if they end behind the body, or one has a length below 0 or of more than ten bytes.
    """
    parts: list[NDArray[np.int64]] = []
    begins: list[int] = []
    append = begins.append
    left, step_before, negative = count, 0, 0
    doubt = 0  # after a search that finds few, the next ones are left out: twice as many each time
    left_out = 0
    try:
        while left:
            begin = position
            size = body[position]
            position += 1
            if size > 0x7F:
                high = body[position]
                if high > 0x7F:
                    size, position = rest_of_varint(body, position, size)
                else:
                    size = size & 0x7F | high << 7
                    position += 1
            negative |= size
            append(begin)
            left -= 1
            end = position + (size >> 1)
            step = end - begin
            if step == step_before and left >= _RUN_MIN:
                if left_out:
                    left_out -= 1
                else:
                    found = _run_length(octets, end, step, bytes(body[begin:position]), left)
                    doubt = 0 if found >= _RUN_MIN else min(2 * doubt + 1, _RUN_DOUBT_MAX)
                    left_out = doubt
                    if found:
                        stop = end + found * step
                        parts.append(np.array(begins, dtype=np.int64))
                        parts.append(np.arange(end, stop, step, dtype=np.int64))
                        begins.clear()
                        left -= found
                        end = stop
            step_before = step
            position = end
    except (IndexError, CorruptBatch):
        return None
    if negative & 1 or position > len(body):
        return None
    append(position)
    parts.append(np.array(begins, dtype=np.int64))
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _run_length(
    octets: NDArray[np.uint8], position: int, step: int, head: bytes, count_max: int
) -> int:
    """Count the records from a position on that begin with the same length as the one before.

    If the first one has its bytes, it is as long, so the next one begins `step` later, and so on.
    """
    count_max = min(count_max, (len(octets) - position) // step)
    found, window = 0, _RUN_WINDOW
    while found < count_max:
        stop = position + min(window, count_max - found) * step
        is_same = octets[position:stop:step] == head[0]
        for index in range(1, len(head)):
            is_same &= octets[position + index : stop : step] == head[index]
        if not is_same.all():
            return found + int(is_same.argmin())
        found += len(is_same)
        position = stop
        window *= _RUN_WINDOW_GROWTH
    return found


def read_heads(octets: NDArray[np.uint8], bounds: NDArray[np.int64]) -> RecordHeads | None:
    """Read the heads of records, at least one.

    Args:
        octets: the records, and `PADDING` behind the last one.
        bounds: where each one begins, and where the last one ends.

    Returns:
        None if one ends before its value, or its key has an unusual size.
    """
    try:
        position = _behind_varints(octets, bounds[:-1])  # length
        position = _behind_varints(octets, position + 1)  # attributes and time
        position = _behind_varints(octets, position)  # offset
    except CorruptBatch:
        return None
    first = octets[position].astype(np.int64)
    position += 1
    sizes = first & 0x7F
    if (first > 0x7F).any():
        more = np.flatnonzero(first > 0x7F)
        second = octets[position[more]].astype(np.int64)
        if (second > 0x7F).any():
            return None
        sizes[more] |= second << 7
        position[more] += 1
    is_null = (sizes & 1).astype(np.bool_)
    sizes >>= 1
    sizes[is_null] = 0
    key_ends = position + sizes
    if (key_ends >= bounds[1:]).any():
        return None
    is_tombstone = (octets[key_ends] & 1).astype(np.bool_) & ~is_null
    keyless = np.flatnonzero(is_null)
    if len(keyless):
        position, sizes = position[~is_null], sizes[~is_null]
    return RecordHeads(position, sizes, keyless, np.flatnonzero(is_tombstone))


def read_time_deltas(octets: NDArray[np.uint8], begins: NDArray[np.int64]) -> NDArray[np.int64]:
    """Read the timestamp deltas of records that `read_heads` or `read_keys` has read.

    Args:
        octets: the records.
        begins: where each one begins.
    """
    position = _behind_varints(octets, begins) + 1
    found = octets[position].astype(np.uint64)
    more = np.flatnonzero(found > 0x7F)
    found &= _LOW_BITS
    for shift in range(7, 7 * VARINT_SIZE_MAX, 7):
        if not len(more):
            break
        position[more] += 1
        following = octets[position[more]].astype(np.uint64)
        found[more] |= (following & _LOW_BITS) << np.uint64(shift)
        more = more[following > 0x7F]
    return (found >> _ONE).astype(np.int64) ^ -(found & _ONE).astype(np.int64)


def _behind_varints(octets: NDArray[np.uint8], position: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the position after the varint at each position. Raises CorruptBatch."""
    more = octets[position] > 0x7F
    position = position + 1
    for _ in range(VARINT_SIZE_MAX - 1):
        if not more.any():
            return position
        position += more
        more &= octets[position - 1] > 0x7F
    if more.any():
        raise CorruptBatch(f"a varint is longer than {VARINT_SIZE_MAX} bytes")
    return position
