"""Groups and blocks in memory, within two limits."""

from kledger.ledger.cluster.object_format import WalBlock
from kledger.ledger.cluster.wal_cache import WalCache
from kledger.ledger.cluster.wal_index import BlockLocation


def location(file: int, position: int = 2, size: int = 3) -> BlockLocation:
    return BlockLocation(file, WalBlock(7, 0, 1, position, size))


def test_block_of_a_group_that_was_written() -> None:
    cache = WalCache(own_bytes_max=10)
    cache.put_group(1, b"0123456789")
    assert b"234" == cache.block(location(1))
    cache.forget(1)
    assert cache.block(location(1)) is None
    assert cache.group(1) is None


def test_least_recently_used_go_first_each_kind_by_itself() -> None:
    cache = WalCache(own_bytes_max=20, read_bytes_max=6)
    for file in (1, 2):
        cache.put_group(file, b"0123456789")
    for position in (10, 20, 30):
        cache.put_block(location(9, position), b"abc")
    assert [None, b"abc", b"abc"] == [cache.block(location(9, at)) for at in (10, 20, 30)]
    cache.block(location(1))
    cache.put_group(3, b"0123456789")
    assert [True, False, True] == [cache.group(file) is not None for file in (1, 2, 3)]


def test_what_is_larger_than_the_limit_is_not_kept() -> None:
    cache = WalCache(own_bytes_max=5, read_bytes_max=0)
    cache.put_group(1, b"0123456789")
    cache.put_block(location(2), b"abc")
    assert cache.group(1) is None
    assert cache.block(location(2)) is None


def test_cleared_cache_has_nothing_and_its_whole_limit() -> None:
    cache = WalCache(own_bytes_max=10, read_bytes_max=3)
    for _ in range(2):
        cache.put_group(1, b"0123456789")
        cache.put_block(location(2), b"abc")
        assert 13 == cache.size
        cache.clear()
        assert (0, None, None) == (cache.size, cache.group(1), cache.block(location(2)))
