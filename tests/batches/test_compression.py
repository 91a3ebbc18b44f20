"""Codecs: round trips, other programs, damage, and bombs within bounded memory."""

import tracemalloc
from mmap import mmap

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as kafka_codec

from kledger.batches.compression import MAPPED_SIZE_MIN, Codec, compress, decompress, release
from kledger.batches.errors import CorruptBatch, DecompressedTooLarge, UnsupportedCompression
from kledger.batches.pacing import STEPS_PER_PAUSE

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


@given(st.sampled_from(list(Codec)), st.binary(max_size=300), st.integers(0, 500))
def test_round_trip(codec: Codec, data: bytes, repeat: int) -> None:
    plain = data * repeat
    assert plain == bytes(decompress(codec, memoryview(compress(codec, plain))))


@pytest.mark.parametrize("codec", COMPRESSING)
def test_output_larger_than_the_first_buffer_is_found_whole(codec: Codec) -> None:
    """The library's message for a full buffer steers the growing; a changed one fails here."""
    plain = bytes(range(256)) * 8192
    packed = compress(codec, plain)
    assert len(packed) < len(plain) // 4
    assert plain == bytes(decompress(codec, packed))
    assert plain == bytes(decompress(codec, packed, len(plain)))


@pytest.mark.parametrize("codec", list(Codec))
def test_more_than_the_limit_is_refused(codec: Codec) -> None:
    packed = compress(codec, bytes(300_000))
    with pytest.raises(CorruptBatch):
        decompress(codec, packed, 299_999)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_bomb_takes_no_memory_beyond_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, bomb, 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (3 << 20)


def test_snappy_claim_that_no_input_can_hold_is_refused() -> None:
    claim = b"\xff\xff\xff\x3f" + b"\x00a"
    with pytest.raises(CorruptBatch, match="claims"):
        decompress(Codec.SNAPPY, claim)


def test_snappy_raw_block_is_read_too() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"hello" * 50))
    assert b"hello" * 50 == bytes(decompress(Codec.SNAPPY, raw))


@pytest.mark.parametrize("cut", [8, 15, 17, 19, 25])
def test_snappy_frame_cut_is_corrupt(cut: int) -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"hello" * 50)[:cut])


@pytest.mark.parametrize("codec", COMPRESSING)
def test_damage_is_corrupt_or_found_by_the_checksum_of_the_batch(codec: Codec) -> None:
    packed = compress(codec, b"some text, some more text" * 30)
    for position in range(len(packed)):
        damaged = bytearray(packed)
        damaged[position] ^= 0x55
        try:
            decompress(codec, damaged, 1 << 20)
        except CorruptBatch:
            continue


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("data", [b"\x01\x02\x03", b"\xff" * 100, b"\x1f\x8b\x08"])
def test_garbage_is_corrupt(codec: Codec, data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, data)


def test_unknown_codec_is_unsupported() -> None:
    for call in (compress, decompress):
        with pytest.raises(UnsupportedCompression):
            call(5, b"x")


def test_gzip_of_another_program_is_read_and_ours_by_it() -> None:
    plain = b"abc" * 1000
    assert plain == bytes(decompress(Codec.GZIP, kafka_codec.gzip_encode(plain)))
    assert plain == kafka_codec.gzip_decode(compress(Codec.GZIP, plain))


def test_lz4_and_snappy_are_read_by_the_library_and_lz4_blocks_are_independent() -> None:
    plain = b"abcdefgh" * 40_000
    packed = compress(Codec.LZ4, plain)
    assert plain == bytes(cramjam.lz4.decompress(packed))
    assert packed[4] & 0x20
    noise = bytes(cramjam.zstd.compress(plain))
    assert noise == bytes(cramjam.lz4.decompress(compress(Codec.LZ4, noise)))


@pytest.mark.parametrize("codec", COMPRESSING)
def test_large_output_has_pages_of_its_own_that_are_given_back(codec: Codec) -> None:
    """A bytearray of 128 MiB takes half a second of the GIL to be filled."""
    plain = bytes(range(256)) * (MAPPED_SIZE_MIN // 128)
    body = decompress(codec, compress(codec, plain))
    assert isinstance(body, memoryview)
    pages = body.obj
    assert isinstance(pages, mmap)
    assert plain == body
    release(body)
    assert pages.closed


def test_a_part_of_the_output_that_is_in_use_keeps_it() -> None:
    body = decompress(Codec.GZIP, compress(Codec.GZIP, bytes(2 * MAPPED_SIZE_MIN)))
    part = memoryview(body)[:4]
    release(body)
    assert bytes(4) == part


def test_snappy_blocks_without_end_pause_the_reader() -> None:
    block = bytes(cramjam.snappy.compress_raw(b"x"))
    framed = compress(Codec.SNAPPY, b"")[:16]
    framed += (len(block).to_bytes(4, "big") + block) * (4 * STEPS_PER_PAUSE)
    pauses: list[int] = []
    plain = decompress(Codec.SNAPPY, framed, pause=lambda: pauses.append(1))
    assert 4 * STEPS_PER_PAUSE == len(plain)
    assert len(pauses) >= 6
