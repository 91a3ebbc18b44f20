"""Copies of ledgers in an object store: whole, found again, deleted."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from kledger.ledger.errors import (
    Corrupt,
    InvalidArgument,
    NonRecoverable,
    StorageFailed,
    TierUnavailable,
)
from kledger.ledger.offload import object_store as store_module
from kledger.ledger.offload.object_layout import data_name, index_name
from kledger.ledger.offload.object_offloader import STORES_MAX, ObjectStoreOffloader
from kledger.ledger.offload.object_tiers import ObjectStoreTiers
from kledger.ledger.offload.offloader import LedgerOffloader, TieredLedger
from tests.ledger.offload.object_words import FIRST, LEDGER, SECOND, ListSource, numbered

MIB = 1 << 20


@pytest.fixture
async def tiers() -> AsyncIterator[ObjectStoreTiers]:
    tiers = ObjectStoreTiers()
    yield tiers
    await tiers.close()


@pytest.fixture(params=["memory", "file"])
def whole(
    request: pytest.FixtureRequest, tiers: ObjectStoreTiers, tmp_path: Path
) -> ObjectStoreOffloader:
    """The offloader of a store."""
    url = "memory://" if request.param == "memory" else f"file://{tmp_path}/tier"
    return tiers.from_url(url)


@pytest.fixture
def offloader(whole: ObjectStoreOffloader) -> ObjectStoreOffloader:
    """That of a partition."""
    return whole.below("public/default/orders-x/0")


async def read_all(ledger: TieredLedger, bytes_max: int = 3 * MIB) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < ledger.entries:
        found += map(bytes, await ledger.read(len(found), end=ledger.entries, bytes_max=bytes_max))
    return found


async def names(offloader: ObjectStoreOffloader) -> list[str]:
    return [each.name for each in await offloader.stored()]


async def test_entries_come_back_as_they_were(offloader: ObjectStoreOffloader) -> None:
    """Small entries, one larger than a block, and one larger than a part of an upload."""
    entries = [*numbered(3000, 1000), bytes(3 * MIB), b"", bytes(9 * MIB), *numbered(10)]
    seam: LedgerOffloader = offloader
    await seam.offload(ListSource(entries), FIRST, seam.location)
    ledger = await seam.open(LEDGER, FIRST, seam.location)
    assert len(entries) == ledger.entries
    assert entries == await read_all(ledger)
    assert entries == await read_all(ledger, bytes_max=1)
    await ledger.close()


async def test_objects_are_in_the_folder_of_the_partition(
    whole: ObjectStoreOffloader, offloader: ObjectStoreOffloader
) -> None:
    await offloader.offload(ListSource(numbered(3)), FIRST, offloader.location)
    folder = "public/default/orders-x/0/"
    assert folder == offloader.location["folder"]
    expected = [folder + data_name(LEDGER, FIRST), folder + index_name(LEDGER, FIRST)]
    assert expected == await names(whole)


async def test_deleted_copy_leaves_nothing(
    whole: ObjectStoreOffloader, offloader: ObjectStoreOffloader
) -> None:
    for attempt in (FIRST, SECOND):
        await offloader.offload(ListSource(numbered(3)), attempt, offloader.location)
    await offloader.delete(LEDGER, FIRST, offloader.location)
    await offloader.delete(LEDGER, FIRST, offloader.location)
    with pytest.raises(NonRecoverable):
        await offloader.open(LEDGER, FIRST, offloader.location)
    assert 2 == len(await names(whole))
    await offloader.delete(LEDGER, SECOND, offloader.location)
    assert [] == await names(whole)


@pytest.mark.parametrize("fails_at", [0, 2, 2500])
async def test_failing_source_leaves_no_copy(
    offloader: ObjectStoreOffloader,
    whole: ObjectStoreOffloader,
    fails_at: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_module, "PART_BYTES", 100_000)
    error = StorageFailed("the disk")
    source = ListSource(numbered(3000, 1000), fails_at=fails_at, error=error)
    with pytest.raises(StorageFailed, match="the disk"):
        await offloader.offload(source, FIRST, offloader.location)
    assert [] == await names(whole)


async def test_source_with_too_many_entries_is_refused(
    offloader: ObjectStoreOffloader, whole: ObjectStoreOffloader
) -> None:
    class Growing(ListSource):
        @property
        def entries(self) -> int:
            return 2

    with pytest.raises(Corrupt, match="ledger 7: expected 2 entries, got 3"):
        await offloader.offload(Growing(numbered(3)), FIRST, offloader.location)
    assert [] == await names(whole)


async def test_copies_of_other_attempts_and_ledgers_are_not_taken(
    offloader: ObjectStoreOffloader,
) -> None:
    await offloader.offload(ListSource(numbered(3)), FIRST, offloader.location)
    for ledger_id, attempt in ((LEDGER, SECOND), (LEDGER + 1, FIRST)):
        with pytest.raises(NonRecoverable):
            await offloader.open(ledger_id, attempt, offloader.location)


@pytest.mark.parametrize(("first", "end"), [(-1, 2), (2, 2), (2, 4), (3, 4), (0, 0)])
async def test_entries_that_do_not_exist_are_refused(
    offloader: ObjectStoreOffloader, first: int, end: int
) -> None:
    await offloader.offload(ListSource(numbered(3)), FIRST, offloader.location)
    ledger = await offloader.open(LEDGER, FIRST, offloader.location)
    with pytest.raises(InvalidArgument, match=f"entries {first} to {end} of ledger 7: it has 3"):
        await ledger.read(first, end=end, bytes_max=100)


# Damage in the store


async def damaged_read(
    folder: Path, tiers: ObjectStoreTiers, suffix: str, change: bytes | int
) -> list[bytes]:
    """Copy a ledger, overwrite or truncate an object, and read the ledger."""
    offloader = tiers.from_url(f"file://{folder}/tier")
    await offloader.offload(ListSource(numbered(3000, 1000)), FIRST, offloader.location)
    file = folder / "tier" / (data_name(LEDGER, FIRST) + suffix)
    content = file.read_bytes()
    middle = len(content) // 2
    if isinstance(change, int):
        file.write_bytes(content[:change])
    else:
        file.write_bytes(content[:middle] + change + content[middle + len(change) :])
    return await read_all(await offloader.open(LEDGER, FIRST, offloader.location))


@pytest.mark.parametrize("suffix", ["", "-index"])
@pytest.mark.parametrize("change", [0, 30, 45, b"x"])
async def test_damaged_objects_are_corrupt(
    tmp_path: Path, tiers: ObjectStoreTiers, suffix: str, change: bytes | int
) -> None:
    with pytest.raises(Corrupt):
        await damaged_read(tmp_path, tiers, suffix, change)


async def test_missing_data_object_is_lost(tmp_path: Path, tiers: ObjectStoreTiers) -> None:
    offloader = tiers.from_url(f"file://{tmp_path}/tier")
    await offloader.offload(ListSource(numbered(3)), FIRST, offloader.location)
    (tmp_path / "tier" / data_name(LEDGER, FIRST)).unlink()
    ledger = await offloader.open(LEDGER, FIRST, offloader.location)
    with pytest.raises(NonRecoverable):
        await ledger.read(0, end=3, bytes_max=100)


async def test_damaged_block_hides_no_other(tmp_path: Path, tiers: ObjectStoreTiers) -> None:
    """The middle block of three is damaged; all are in one request."""
    offloader = tiers.from_url(f"file://{tmp_path}/tier")
    entries = [bytes([number]) * (MIB - 100) for number in range(3)]
    await offloader.offload(ListSource(entries), FIRST, offloader.location)
    file = tmp_path / "tier" / data_name(LEDGER, FIRST)
    content = bytearray(file.read_bytes())
    content[3 * MIB // 2] ^= 1
    file.write_bytes(content)
    ledger = await offloader.open(LEDGER, FIRST, offloader.location)
    assert entries[:1] == await ledger.read(0, end=3, bytes_max=3 * MIB)
    with pytest.raises(Corrupt, match="block 1"):
        await ledger.read(1, end=3, bytes_max=3 * MIB)
    assert entries[2:] == await ledger.read(2, end=3, bytes_max=3 * MIB)


# Settings that change


async def test_copies_are_found_after_the_url_has_changed(
    tmp_path: Path, tiers: ObjectStoreTiers
) -> None:
    before = tiers.from_url(f"file://{tmp_path}/before").below("orders")
    location = before.location
    await before.offload(ListSource(numbered(3)), FIRST, location)
    after = tiers.from_url(f"file://{tmp_path}/after").below("orders")
    assert numbered(3) == await read_all(await after.open(LEDGER, FIRST, location))
    await after.offload(ListSource(numbered(3)), SECOND, after.location)
    assert 2 == len(await names(after))
    await after.delete(LEDGER, FIRST, location)
    assert [] == await names(before)


async def test_copies_are_found_without_a_url(tmp_path: Path, tiers: ObjectStoreTiers) -> None:
    before = tiers.from_url(f"file://{tmp_path}/tier").below("orders")
    location = before.location
    await before.offload(ListSource(numbered(3)), FIRST, location)
    found = tiers.from_location(before.name, location)
    assert found is not None
    assert numbered(3) == await read_all(await found.open(LEDGER, FIRST, location))
    assert None is tiers.from_location("glacier", location)
    assert None is tiers.from_location(before.name, {})


async def test_location_has_what_finds_the_store_and_no_secret() -> None:
    options = {
        "endpoint": "https://store:1",
        "region": "eu",
        "access_key_id": "hidden",
        "secret_access_key": "hidden",
    }
    tiers = ObjectStoreTiers(options)
    offloader = tiers.from_url("s3://bucket/prefix").below("t/n/orders-x/0")
    assert {
        "url": "s3://bucket/prefix",
        "endpoint": "https://store:1",
        "region": "eu",
        "folder": "t/n/orders-x/0/",
    } == offloader.location
    await tiers.close()


async def test_location_of_something_else_is_refused(offloader: ObjectStoreOffloader) -> None:
    with pytest.raises(InvalidArgument, match="location of a copy: expected url, got bucket"):
        await offloader.open(LEDGER, FIRST, {"bucket": "x"})


async def test_stores_of_earlier_settings_are_limited(
    tmp_path: Path, tiers: ObjectStoreTiers
) -> None:
    """Each is made again when it is needed."""
    now = tiers.from_url(f"file://{tmp_path}/now")
    for number in [*range(STORES_MAX + 2), 0]:
        then = tiers.from_url(f"file://{tmp_path}/{number}")
        await then.offload(ListSource(numbered(3)), UUID(int=number + 100), then.location)
        opened = await now.open(LEDGER, UUID(int=number + 100), then.location)
        assert numbered(3) == await read_all(opened)
    assert STORES_MAX == len(now._stores._earlier)


# Other objects


async def test_whole_objects_are_replaced_and_deleted(
    offloader: ObjectStoreOffloader, whole: ObjectStoreOffloader
) -> None:
    assert None is await offloader.get_whole("manifest.json")
    await offloader.put_whole("manifest.json", b"first")
    await offloader.put_whole("manifest.json", b"{}")
    assert b"{}" == await offloader.get_whole("manifest.json")
    assert ["public/default/orders-x/0/manifest.json"] == await names(whole)
    await offloader.delete_whole("manifest.json")
    await offloader.delete_whole("manifest.json")
    assert [] == await names(whole)


async def test_store_that_fails_is_unavailable(tmp_path: Path, tiers: ObjectStoreTiers) -> None:
    """The data object was written, the index cannot be: the copy is none, and can be deleted."""
    offloader = tiers.from_url(f"file://{tmp_path}/tier")
    (tmp_path / "tier" / index_name(LEDGER, FIRST)).mkdir(parents=True)
    with pytest.raises(TierUnavailable):
        await offloader.offload(ListSource(numbered(3)), FIRST, offloader.location)
    (tmp_path / "tier" / index_name(LEDGER, FIRST)).rmdir()
    await offloader.delete(LEDGER, FIRST, offloader.location)
    assert [] == await names(offloader)
