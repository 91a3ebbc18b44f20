"""The disk cache of tiers: what it keeps, deletes and survives."""

import errno
import os
from pathlib import Path

import pytest

from kledger.ledger.offload.tier_cache import WRITING_BYTES_MAX, TierCache
from kledger.runtime.blocking import BlockingPool


def cache(folder: Path, pool: BlockingPool, cache_bytes: int = 1000) -> TierCache:
    return TierCache(folder / "cache", cache_bytes, pool=pool)


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in (folder / "cache").iterdir())


async def test_files_are_found_by_name(tmp_path: Path, pool: BlockingPool) -> None:
    kept = cache(tmp_path, pool)
    assert None is await kept.get("a-1")
    await kept.put("a-1", b"one")
    await kept.put("a-1", b"again: the same bytes, so they are not written")
    assert b"one" == await kept.get("a-1")
    assert 3 == kept.size


async def test_files_survive_a_restart(tmp_path: Path, pool: BlockingPool) -> None:
    """Those that were being written do not."""
    await cache(tmp_path, pool).put("a-1", b"one")
    (tmp_path / "cache" / "a-2.unfinished").write_bytes(b"tw")
    again = cache(tmp_path, pool)
    assert b"one" == await again.get("a-1")
    assert None is await again.get("a-2")
    assert (3, ["a-1"]) == (again.size, files(tmp_path))


async def test_least_recently_used_files_are_deleted(tmp_path: Path, pool: BlockingPool) -> None:
    kept = cache(tmp_path, pool)
    for name in "abc":
        await kept.put(name, bytes(300))
    await kept.get("a")
    await kept.put("d", bytes(300))
    assert (900, ["a", "c", "d"]) == (kept.size, files(tmp_path))
    await kept.put("large", bytes(1001))
    assert ["a", "c", "d"] == files(tmp_path)


async def test_order_of_use_survives_a_restart(tmp_path: Path, pool: BlockingPool) -> None:
    kept = cache(tmp_path, pool)
    for number, name in enumerate("abc"):
        await kept.put(name, bytes(300))
        os.utime(tmp_path / "cache" / name, (number, number))
    await kept.get("a")
    smaller = cache(tmp_path, pool, cache_bytes=600)
    assert None is await smaller.get("b")
    assert ["a", "c"] == files(tmp_path)


async def test_files_of_a_copy_are_dropped(tmp_path: Path, pool: BlockingPool) -> None:
    kept = cache(tmp_path, pool)
    for name in ("a-1", "a-index", "b-1"):
        await kept.put(name, b"x")
    await kept.drop("a-")
    assert (1, ["b-1"]) == (kept.size, files(tmp_path))


async def test_file_that_was_taken_away_is_a_miss(tmp_path: Path, pool: BlockingPool) -> None:
    kept = cache(tmp_path, pool)
    await kept.put("a", b"x")
    (tmp_path / "cache" / "a").unlink()
    assert None is await kept.get("a")
    await kept.put("a", b"x")
    assert b"x" == await kept.get("a")


async def test_full_disk_is_no_error(
    tmp_path: Path,
    pool: BlockingPool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged once."""
    kept = cache(tmp_path, pool)

    def full(path: Path, data: bytes) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        await kept.put("a", b"x")
        await kept.put("b", b"x")
    assert ["the cache of the tier cannot be used: No space left on device"] == caplog.messages
    assert ([], 0) == (files(tmp_path), kept.size)
    await kept.put("a", b"x")
    assert b"x" == await kept.get("a")


async def test_folder_that_cannot_be_made_is_no_error(tmp_path: Path, pool: BlockingPool) -> None:
    (tmp_path / "cache").touch()
    kept = cache(tmp_path, pool)
    await kept.put("a", b"x")
    assert None is await kept.get("a")
    await kept.drop("a")


async def test_bytes_that_wait_for_the_disk_are_limited(tmp_path: Path, pool: BlockingPool) -> None:
    kept = cache(tmp_path, pool, cache_bytes=4 * WRITING_BYTES_MAX)
    await kept.put("a", bytes(WRITING_BYTES_MAX))
    await kept.put("b", bytes(WRITING_BYTES_MAX + 1))
    assert ["a"] == files(tmp_path)


async def test_closed_pool_is_a_miss(tmp_path: Path) -> None:
    """A server that stops."""
    pool = BlockingPool(1)
    kept = cache(tmp_path, pool)
    await kept.put("a", b"x")
    pool.close()
    await kept.put("b", b"x")
    await kept.drop("b")
    assert None is await kept.get("a")
    assert None is await cache(tmp_path, pool).get("a")
