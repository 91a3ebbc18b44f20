"""Reads of blocks: which requests are sent, shared, made ahead and cancelled."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import AlreadyClosed, Corrupt, TierUnavailable
from kledger.ledger.offload.block_reads import (
    AHEAD_BYTES,
    INDEXES_MAX,
    READERS_REMEMBERED,
    REQUEST_BYTES,
    BlockReads,
    BlockSource,
)
from kledger.ledger.offload.object_layout import data_name, index_name
from kledger.ledger.offload.tier_cache import TierCache
from kledger.runtime.blocking import BlockingPool
from kledger.runtime.tasks import Supervisor
from tests.ledger.offload.object_words import (
    FIRST,
    LEDGER,
    SECOND,
    CountingStore,
    numbered,
    written,
)

MIB = 1 << 20
DATA = data_name(LEDGER, FIRST)
MakeReads = Callable[..., BlockReads]


@pytest.fixture
def store(pool: BlockingPool) -> CountingStore:
    return CountingStore("memory://", pool=pool)


@pytest.fixture
async def make_reads(supervisor: Supervisor, pool: BlockingPool) -> AsyncIterator[MakeReads]:
    def make(**more: object) -> BlockReads:
        return BlockReads(supervisor=supervisor, pool=pool, **more)  # type: ignore[arg-type]

    yield make
    await supervisor.close()


@pytest.fixture
def reads(make_reads: MakeReads) -> BlockReads:
    return make_reads()


async def stored(
    store: CountingStore,
    entries: Sequence[Buffer],
    *,
    attempt: UUID = FIRST,
    block_bytes: int = 1000,
) -> BlockSource:
    """A copy in the store; a block has the entries that fit into 1000 bytes."""
    data, index = written(entries, attempt=attempt, block_bytes=block_bytes)
    await store.put(data_name(LEDGER, index.attempt), data)
    await store.put(index_name(LEDGER, index.attempt), index.encode())
    return BlockSource(store=store, folder="", index=index)


def large(count: int) -> list[Buffer]:
    """Entries that fill a block of 1 MiB each."""
    return [bytes([number]) * (MIB - 20) for number in range(count)]


async def test_read_requests_the_blocks_that_it_needs(
    reads: BlockReads, store: CountingStore
) -> None:
    """Nine entries are in a block; a read of 1000 bytes in the middle needs two of them."""
    source = await stored(store, numbered(100))
    index = source.index
    assert numbered(100)[13:22] == await reads.read(source, 13, end=100, bytes_max=1000)
    start, end = index.offsets[1], index.end_offset(2)
    assert [(DATA, start, end - start)] == store.requests


@pytest.mark.parametrize(
    ("first", "end", "bytes_max", "expected"),
    [
        (0, 100, 1, 1),
        (8, 100, 1, 1),
        (99, 100, 10_000, 1),
        (5, 7, 10_000, 2),
        (8, 10, 10_000, 2),
        (0, 100, 102 + 102, 2),
        (0, 100, 102 + 101, 1),
        (0, 100, 100_000, 100),
    ],
)
async def test_read_ends_at_its_limits(
    *, reads: BlockReads, store: CountingStore, first: int, end: int, bytes_max: int, expected: int
) -> None:
    source = await stored(store, numbered(100))
    found = await reads.read(source, first, end=end, bytes_max=bytes_max)
    assert numbered(100)[first : first + expected] == found


async def test_entry_above_the_limit_ends_a_read(reads: BlockReads, store: CountingStore) -> None:
    source = await stored(store, [b"small", bytes(5000), b"small"])
    assert [b"small"] == await reads.read(source, 0, end=3, bytes_max=100)
    assert [bytes(5000)] == await reads.read(source, 1, end=3, bytes_max=100)


async def test_readers_of_one_block_share_a_request(
    reads: BlockReads, store: CountingStore
) -> None:
    source = await stored(store, numbered(100))
    found = await asyncio.gather(
        *(reads.read(source, first, end=100, bytes_max=1) for first in (0, 3, 8, 9))
    )
    assert [[numbered(100)[first]] for first in (0, 3, 8, 9)] == found
    assert 2 == len(store.requests), "of the first block and of the second"


async def test_block_that_was_read_stays_in_memory(reads: BlockReads, store: CountingStore) -> None:
    source = await stored(store, numbered(100))
    for first in (0, 1, 8, 2):
        await reads.read(source, first, end=100, bytes_max=1)
    assert 1 == len(store.requests)


async def test_memory_is_limited(make_reads: MakeReads, store: CountingStore) -> None:
    reads = make_reads(memory_bytes_max=2000)
    source = await stored(store, numbered(100))
    for _ in range(2):
        for first in range(0, 100, 9):
            await reads.read(source, first, end=100, bytes_max=1)
            assert reads.memory_bytes <= 2000
    assert 24 == len(store.requests)


async def test_no_memory_is_needed(make_reads: MakeReads, store: CountingStore) -> None:
    source = await stored(store, numbered(100))
    reads = make_reads(memory_bytes_max=0)
    assert numbered(100) == await reads.read(source, 0, end=100, bytes_max=100_000)


# Reading ahead


async def test_sequential_reader_finds_the_next_blocks(
    reads: BlockReads, store: CountingStore
) -> None:
    """Its second read shows that it is one; what it will need next is requested in large parts."""
    source = await stored(store, large(24), block_bytes=MIB)
    await reads.read(source, 0, end=24, bytes_max=MIB)
    assert 1 == len(store.requests)
    await reads.read(source, 1, end=24, bytes_max=MIB)
    await until(lambda: len(store.requests) == 4)
    sizes = [length // MIB for _, _, length in store.requests]
    assert [1, 1, REQUEST_BYTES // MIB, REQUEST_BYTES // MIB] == sizes
    await reads.read(source, 2, end=24, bytes_max=MIB)
    await reads.read(source, 3, end=24, bytes_max=MIB)
    assert 4 == len(store.requests)
    assert AHEAD_BYTES + 2 * MIB >= reads.memory_bytes


@pytest.mark.parametrize("block_bytes", [MIB, MIB * 51 // 100])
async def test_sequential_reader_needs_few_requests(
    reads: BlockReads, store: CountingStore, block_bytes: int
) -> None:
    """Also if blocks do not fill a request exactly: none is left for a request of its own."""
    entries = [entry[: block_bytes - 20] for entry in large(56)]
    source = await stored(store, entries, block_bytes=block_bytes)
    for first in range(56):
        (entry,) = await reads.read(source, first, end=56, bytes_max=block_bytes)
        assert entries[first] == entry
    assert source.index.data_size - 34 == sum(length for _, _, length in store.requests)
    assert 56 // (REQUEST_BYTES // block_bytes) + 3 >= len(store.requests)


async def test_random_reader_reads_nothing_ahead(reads: BlockReads, store: CountingStore) -> None:
    source = await stored(store, large(24), block_bytes=MIB)
    for first in (5, 17, 3, 11):
        await reads.read(source, first, end=24, bytes_max=1)
    assert 4 == len(store.requests)


async def test_full_memory_ends_reading_ahead(make_reads: MakeReads, store: CountingStore) -> None:
    """A request in flight has its part of the memory, so another reader's blocks are not lost."""
    reads = make_reads(memory_bytes_max=3 * MIB)
    source = await stored(store, large(24), block_bytes=MIB)
    for first in range(3):
        await reads.read(source, first, end=24, bytes_max=MIB)
    assert 3 == len(store.requests)


async def test_remembered_readers_are_limited(reads: BlockReads, store: CountingStore) -> None:
    source = await stored(store, numbered(READERS_REMEMBERED + 10))
    for first in range(READERS_REMEMBERED + 10):
        await reads.read(source, first, end=first + 1, bytes_max=1)
        await reads.read(source, 0, end=1, bytes_max=1)
    assert READERS_REMEMBERED >= len(reads._recent_ends)


# Errors


async def test_error_reaches_every_reader_as_its_own(
    reads: BlockReads, store: CountingStore
) -> None:
    """And the next read tries again."""
    source = await stored(store, numbered(100))
    store.errors.append(TierUnavailable("down"))
    errors = await asyncio.gather(
        *(reads.read(source, first, end=100, bytes_max=1) for first in (0, 1)),
        return_exceptions=True,
    )
    assert ["down", "down"] == [str(each) for each in errors]
    assert errors[0] is not errors[1]
    assert numbered(1) == await reads.read(source, 0, end=1, bytes_max=1)


async def test_error_after_the_first_block_ends_the_read(
    reads: BlockReads, store: CountingStore
) -> None:
    source = await stored(store, large(9), block_bytes=MIB)
    await reads.read(source, 0, end=1, bytes_max=1)
    store.errors.append(TierUnavailable("down"))
    assert large(1) == await reads.read(source, 0, end=9, bytes_max=2 * MIB)


async def test_truncated_object_is_corrupt(reads: BlockReads, store: CountingStore) -> None:
    """What is left of it is read."""
    source = await stored(store, numbered(100))
    whole = bytes(await store.get(DATA))
    await store.put(DATA, whole[: source.index.offsets[2] + 5])
    assert numbered(18) == await reads.read(source, 0, end=100, bytes_max=100_000)
    for first in (18, 27, 99):
        with pytest.raises(Corrupt):
            await reads.read(source, first, end=100, bytes_max=1)


# Cancellation


async def test_request_ends_with_its_last_reader(reads: BlockReads, store: CountingStore) -> None:
    source = await stored(store, numbered(100))
    store.hold.clear()
    both = [asyncio.ensure_future(reads.read(source, 0, end=9, bytes_max=1)) for _ in range(2)]
    await until(lambda: bool(store.requests))
    both[0].cancel()
    await asyncio.wait([both[0]])
    store.hold.set()
    assert numbered(1) == await both[1], "it was not cancelled with the first"

    store.hold.clear()
    alone = asyncio.ensure_future(reads.read(source, 50, end=60, bytes_max=1))
    await until(lambda: len(store.requests) == 2)
    alone.cancel()
    await asyncio.wait([alone])
    again = asyncio.ensure_future(reads.read(source, 50, end=60, bytes_max=1))
    await until(lambda: len(store.requests) == 3)
    store.hold.set()
    assert numbered(100)[50:51] == await again, "nor does another reader join a cancelled request"


async def test_closing_ends_reads(
    reads: BlockReads, store: CountingStore, supervisor: Supervisor
) -> None:
    source = await stored(store, numbered(100))
    store.hold.clear()
    read = asyncio.ensure_future(reads.read(source, 0, end=9, bytes_max=1))
    await until(lambda: bool(store.requests))
    await supervisor.close()
    for call in (read, reads.read(source, 50, end=60, bytes_max=1)):
        with pytest.raises(AlreadyClosed):
            await call


# The disk cache


async def test_second_reader_needs_no_request(
    make_reads: MakeReads, store: CountingStore, tmp_path: Path, pool: BlockingPool
) -> None:
    """Not even after a restart."""
    await stored(store, numbered(100))
    for expected in (3, 0, 0):
        cache = TierCache(tmp_path / "cache", MIB, pool=pool)
        reads = make_reads(cache=cache)
        index = await reads.read_index(store, "", LEDGER, FIRST)
        source = BlockSource(store=store, folder="", index=index)
        for first in (0, 50):
            found = await reads.read(source, first, end=first + 2, bytes_max=100_000)
            assert numbered(100)[first : first + 2] == found
        await until(lambda: len([*(tmp_path / "cache").iterdir()]) == 3)
        assert expected == len(store.requests)
        store.requests.clear()


@pytest.mark.parametrize("damage", ["flipped", "truncated", "swapped"])
async def test_damaged_cache_costs_a_request(
    make_reads: MakeReads, store: CountingStore, tmp_path: Path, pool: BlockingPool, damage: str
) -> None:
    cache = TierCache(tmp_path / "cache", MIB, pool=pool)
    source = await stored(store, numbered(100))
    await make_reads(cache=cache).read(source, 0, end=18, bytes_max=100_000)
    first, second = tmp_path / "cache" / f"{FIRST}-0", tmp_path / "cache" / f"{FIRST}-1"
    await until(second.exists)
    content = first.read_bytes()
    match damage:
        case "flipped":
            first.write_bytes(content[:500] + b"?" + content[501:])
        case "truncated":
            first.write_bytes(content[:500])
        case _:
            first.write_bytes(second.read_bytes())
    assert numbered(9) == await make_reads(cache=cache).read(source, 0, end=9, bytes_max=100_000)
    assert 2 == len(store.requests)
    await until(lambda: first.exists() and first.read_bytes() == content)


async def test_damaged_index_in_the_cache_costs_a_request(
    make_reads: MakeReads, store: CountingStore, tmp_path: Path, pool: BlockingPool
) -> None:
    source = await stored(store, numbered(100))
    for _ in range(2):
        reads = make_reads(cache=TierCache(tmp_path / "cache", MIB, pool=pool))
        assert source.index == await reads.read_index(store, "", LEDGER, FIRST)
        (tmp_path / "cache" / f"{FIRST}-index").write_bytes(b"damaged")
    assert 2 == len(store.requests)


async def test_index_is_requested_once(reads: BlockReads, store: CountingStore) -> None:
    """By several readers at once, and by later ones; the least recently used are forgotten."""
    source = await stored(store, numbered(9))
    indexes = [reads.read_index(store, "", LEDGER, FIRST) for _ in range(3)]
    assert [source.index] * 3 == await asyncio.gather(*indexes)
    assert 1 == len(store.requests)
    for number in range(INDEXES_MAX):
        attempt = UUID(int=number + 10)
        await stored(store, numbered(1), attempt=attempt)
        await reads.read_index(store, "", LEDGER, attempt)
    await reads.read_index(store, "", LEDGER, FIRST)
    assert 2 + INDEXES_MAX == len(store.requests)


async def test_deleted_copy_leaves_the_caches(
    make_reads: MakeReads, store: CountingStore, tmp_path: Path, pool: BlockingPool
) -> None:
    cache = TierCache(tmp_path / "cache", MIB, pool=pool)
    reads = make_reads(cache=cache)
    for attempt in (FIRST, SECOND):
        source = await stored(store, numbered(9), attempt=attempt)
        await reads.read(source, 0, end=9, bytes_max=100_000)
        await until((tmp_path / "cache" / f"{attempt}-0").exists)
    before = reads.memory_bytes
    await reads.drop(FIRST)
    assert before // 2 == reads.memory_bytes
    assert [f"{SECOND}-0"] == [each.name for each in (tmp_path / "cache").iterdir()]


async def test_blocks_of_two_copies_of_a_ledger_are_not_mixed(
    reads: BlockReads, store: CountingStore
) -> None:
    """Two stores in one process may number their ledgers alike."""
    ours = await stored(store, [b"ours"] * 5)
    others = await stored(store, [b"them"] * 5, attempt=SECOND)
    assert [b"ours"] == await reads.read(ours, 0, end=1, bytes_max=100)
    assert [b"them"] == await reads.read(others, 0, end=1, bytes_max=100)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another task does after the readers were served."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - another thread makes it true
            await asyncio.sleep(0)
