"""Key hashes: 128 bits for each key of many records, computed for all records at once.

Rule: equal keys have equal hashes, and two other keys have the same hash with a probability of
2^-128, whatever a client chooses, as the multipliers are secrets of the process. Each of four lanes
is the upper half of a sum of products of 32-bit words and 64-bit multipliers, the multilinear hash
of Lemire and Kaser ("Strongly universal string hashing is fast", 2014); the size of a key is its
first word. A key of 64 bytes and more is represented by its BLAKE2b digest of 64.
Must not know: records, batches.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KEY_SIZE_MAX = 64
"""A key of so many bytes is represented by a digest."""
PADDING = bytes(KEY_SIZE_MAX + 8)
"""Follows the last key in its buffer, so that reading whole words is always possible."""

_WORD_BITS = np.uint64(32)
_LOW_HALF = np.uint64((1 << 32) - 1)
_HIGH_HALF = np.uint64(((1 << 32) - 1) << 32)
_LANES = 4
# Python hashes bytes with a secret of the process.
_MULTIPLIERS = [
    [np.uint64(hash(b"%d of lane %d" % (word, lane)) % (1 << 64)) for lane in range(_LANES)]
    for word in range(2 + KEY_SIZE_MAX // 4)
]
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], dtype=np.uint64)
"""Of the first bytes of a word of eight."""


class KeyHashes(NamedTuple):
    """The hashes of some keys, in two halves."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]


def hash_keys(buffer: bytes, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> KeyHashes:
    """Return the hashes of keys that lie in a buffer.

    Args:
        buffer: ends with `PADDING`.
        starts: where each key begins.
        sizes: of each key.
    """
    if not len(starts):
        return KeyHashes(np.empty(0, np.uint64), np.empty(0, np.uint64))
    size_max = int(sizes.max())
    if size_max < KEY_SIZE_MAX:
        return _hash_short(buffer, starts, sizes, size_max)
    is_long = sizes >= KEY_SIZE_MAX
    short, long = np.flatnonzero(~is_long), np.flatnonzero(is_long)
    digests = [
        blake2b(buffer[start : start + size]).digest()
        for start, size in zip(starts[long].tolist(), sizes[long].tolist(), strict=True)
    ]
    at = np.arange(len(digests)) * KEY_SIZE_MAX
    digested = b"".join((*digests, PADDING))
    hashes = KeyHashes(np.empty(len(starts), np.uint64), np.empty(len(starts), np.uint64))
    for where, found in (
        (short, hash_keys(buffer, starts[short], sizes[short])),
        (long, _hash_short(digested, at, np.full(len(at), KEY_SIZE_MAX), KEY_SIZE_MAX)),
    ):
        hashes.high[where], hashes.low[where] = found
    return hashes


def hash_key_list(keys: Sequence[bytes]) -> KeyHashes:
    """Return the hashes of keys."""
    sizes = np.array([len(key) for key in keys], dtype=np.int64)
    return hash_keys(b"".join((*keys, PADDING)), np.cumsum(sizes) - sizes, sizes)


def _hash_short(
    buffer: bytes, starts: NDArray[np.int64], sizes: NDArray[np.int64], size_max: int
) -> KeyHashes:
    """Hash keys of at most KEY_SIZE_MAX bytes: a loop over their words, not over the keys."""
    # Eight bytes from each byte on, without a copy.
    words = np.ndarray((len(buffer) - 7,), dtype="<u8", buffer=buffer, strides=(1,))
    size_words = sizes.astype(np.uint64)
    is_same_size = int(sizes.min()) == size_max
    lanes = [size_words * multiplier for multiplier in _MULTIPLIERS[0]]
    for lane, multiplier in zip(lanes, _MULTIPLIERS[1], strict=True):
        np.add(lane, multiplier, out=lane)
    for at in range(0, size_max, 8):
        word = words[starts + at]
        if not is_same_size:
            word &= _MASKS[np.clip(sizes - at, 0, 8)]
        elif size_max - at < 8:
            word &= _MASKS[size_max - at]
        halves = [word & _LOW_HALF]
        if size_max - at > 4:
            halves.append(word >> _WORD_BITS)
        for number, half in enumerate(halves, 2 + at // 4):
            for lane, multiplier in zip(lanes, _MULTIPLIERS[number], strict=True):
                np.add(lane, half * multiplier, out=lane)
    first, second, third, fourth = lanes
    return KeyHashes(
        (first & _HIGH_HALF) | (second >> _WORD_BITS), (third & _HIGH_HALF) | (fourth >> _WORD_BITS)
    )
