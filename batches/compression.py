"""The four codecs of record batches, by cramjam.

Rule: output never grows beyond the limit the caller sets, so that a small batch cannot exhaust
the memory of the process; every error of a codec becomes CorruptBatch. The library decompresses
without the GIL; large outputs are mapped separately, because zeroing and freeing a bytearray would
hold the GIL for a hundred times as long.
Must not know: records.

Kafka's snappy is the framing of snappy-java ("xerial": a 16-byte head, then length-prefixed raw
blocks); some clients send one raw block instead, and both are read. Kafka's lz4 is the standard
frame; its Java client refuses frames with dependent blocks, so frames are written block by block.
"""

from contextlib import suppress
from enum import IntEnum
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct

import cramjam

from kledger.batches.buffers import Buffer
from kledger.batches.errors import CorruptBatch, DecompressedTooLarge, UnsupportedCompression
from kledger.batches.pacing import STEPS_PER_PAUSE, Pause, no_pause, paced

OUTPUT_SIZE_MAX = 128 << 20
MAPPED_SIZE_MIN = 1 << 20
"""From this size on an output gets pages that exist only once they are written to."""
_OUTPUT_SIZE_FIRST = 64 << 10
_GROWTH = 4
_FULL_MESSAGE = "write whole buffer"  # the library's message for a full output; pinned by a test

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEAD = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_SIZE = 32 << 10
_SNAPPY_RATIO_MAX = 64  # a copy of 2 bytes yields at most 64
_INT32_BE = Struct(">i")

_LZ4_HEAD = b"\x04\x22\x4d\x18\x60\x40\x82"  # independent blocks of at most 64 KiB, no checksums
_LZ4_END = b"\x00\x00\x00\x00"
_LZ4_BLOCK_SIZE = 64 << 10
_LZ4_STORED_BIT = 0x80000000
_UINT32_LE = Struct("<I")


class Codec(IntEnum):
    """The codec numbers of the attributes field."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: Buffer) -> bytes:
    """Compress `data` as one block of records.

    Raises:
        UnsupportedCompression: there is no such codec.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data))
        case Codec.SNAPPY:
            return _compress_xerial(memoryview(data))
        case Codec.LZ4:
            return _compress_lz4(memoryview(data))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data))
        case _:
            raise UnsupportedCompression(f"compression codec {codec}, expected 0 to 4")


def decompress(
    codec: int, data: Buffer, size_max: int = OUTPUT_SIZE_MAX, pause: Pause = no_pause
) -> Buffer:
    """Undo `compress`; for `NONE` return the same buffer.

    Args:
        codec: the number from the attributes field.
        data: one block of records, compressed.
        size_max: limit of the output, in bytes.
        pause: see `batches.pacing`.

    Raises:
        CorruptBatch: the data is damaged.
        DecompressedTooLarge: it holds more than `size_max` bytes.
        UnsupportedCompression: there is no such codec.
    """
    match codec:
        case Codec.NONE:
            if len(data) > size_max:
                raise DecompressedTooLarge(
                    f"records of {len(data)} bytes, expected at most {size_max}"
                )
            return data
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), size_max, pause)
        case Codec.GZIP | Codec.LZ4 | Codec.ZSTD:
            return _decompress_growing(Codec(codec), data, size_max)
        case _:
            raise UnsupportedCompression(f"compression codec {codec}, expected 0 to 4")


def release(body: Buffer) -> None:
    """Free the memory of a body that `decompress` returned, if it was mapped separately.

    Closing the pages releases the GIL meanwhile; collecting them would not. Parts of
    the body that are still in use keep it.
    """
    if isinstance(body, memoryview) and isinstance(pages := body.obj, mmap):
        with suppress(BufferError):
            body.release()
            pages.close()


def _output(size: int) -> mmap | bytearray:
    """Return memory to decompress into."""
    if size < MAPPED_SIZE_MIN:
        return bytearray(size)
    return mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)


def _decompress_growing(codec: Codec, data: Buffer, size_max: int) -> Buffer:
    """Decompress into a small buffer, and if that is too small into one of the maximum size."""
    run = {
        Codec.GZIP: cramjam.gzip.decompress_into,
        Codec.LZ4: cramjam.lz4.decompress_into,
        Codec.ZSTD: cramjam.zstd.decompress_into,
    }[codec]
    size = min(max(_OUTPUT_SIZE_FIRST, _GROWTH * len(data)), size_max)
    while True:
        out = memoryview(_output(size))
        try:
            count = int(run(data, out))
        except cramjam.DecompressionError as error:
            release(out)
            if _FULL_MESSAGE not in str(error):
                raise CorruptBatch(f"{codec.name.lower()} records: {error}") from None
        else:
            return out[:count]
        if size == size_max:
            name = codec.name.lower()
            raise DecompressedTooLarge(f"{name} records hold more than {size_max} bytes, the limit")
        size = size_max


def _decompress_snappy(data: memoryview, size_max: int, pause: Pause) -> Buffer:
    blocks = [data]
    if data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
        blocks = _xerial_blocks(data, pause)
    sizes = [_snappy_size(blocks[index]) for index in paced(len(blocks), pause)]
    total = sum(sizes)
    if total > size_max:
        raise DecompressedTooLarge(
            f"snappy records hold {total} bytes, expected at most {size_max}"
        )
    out = memoryview(_output(total))
    position = 0
    try:
        for index in paced(len(blocks), pause):
            size = sizes[index]
            cramjam.snappy.decompress_raw_into(blocks[index], out[position : position + size])
            position += size
    except cramjam.DecompressionError as error:
        release(out)
        raise CorruptBatch(f"snappy records: {error}") from None
    return out


def _xerial_blocks(data: memoryview, pause: Pause) -> list[memoryview]:
    """Split the framing of snappy-java into blocks."""
    position = len(_XERIAL_HEAD)
    if len(data) < position:
        raise CorruptBatch(f"snappy frame of {len(data)} bytes, expected at least {position}")
    blocks = []
    while position < len(data):
        if position + 4 > len(data):
            raise CorruptBatch(f"snappy frame ends inside a block length at byte {position}")
        size: int = _INT32_BE.unpack_from(data, position)[0]
        position += 4
        if not 0 <= size <= len(data) - position:
            raise CorruptBatch(f"snappy block of {size} bytes, {len(data) - position} left")
        blocks.append(data[position : position + size])
        position += size
        if not len(blocks) % STEPS_PER_PAUSE:
            pause()
    return blocks


def _snappy_size(block: memoryview) -> int:
    """Return how many bytes a block claims to hold; CorruptBatch if its size rules that out."""
    try:
        size = int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy records: {error}") from None
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise CorruptBatch(f"snappy block of {len(block)} bytes claims to hold {size}")
    return size


def _compress_xerial(data: memoryview) -> bytes:
    out = bytearray(_XERIAL_HEAD)
    for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_SIZE]))
        out += _INT32_BE.pack(len(block))
        out += block
    return bytes(out)


def _compress_lz4(data: memoryview) -> bytes:
    out = bytearray(_LZ4_HEAD)
    for start in range(0, len(data), _LZ4_BLOCK_SIZE):
        plain = data[start : start + _LZ4_BLOCK_SIZE]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += _UINT32_LE.pack(len(block))
            out += block
        else:
            out += _UINT32_LE.pack(len(plain) | _LZ4_STORED_BIT)
            out += plain
    out += _LZ4_END
    return bytes(out)
