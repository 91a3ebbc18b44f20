"""The checksum against known answers."""

from kledger.batches.checksum import crc32c


def test_crc32c_known_answers() -> None:
    assert 0xE3069283 == crc32c(b"123456789")
    assert 0 == crc32c(b"")
    assert 0x8A9136AA == crc32c(bytes(32))


def test_crc32c_continues_and_takes_views() -> None:
    assert crc32c(b"123456789") == crc32c(memoryview(b"x456789")[1:], crc32c(b"123"))
