"""Reading a stopped store, whole and damaged."""

from pathlib import Path

import pytest

from kledger.ledger import (
    Entry,
    LedgerStore,
    NewEntry,
    Position,
    StoreInUse,
    StoreUnusable,
)
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.inspection import Problem, StoppedStore, StoredState
from kledger.ledger.metadata import keys
from kledger.ledger.metadata.records import LedgerRecord, encode_ledger
from tests.ledger.words import TWO, add_all, numbers


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A store with `orders` (two full ledgers and one entry), `ended` and `empty`."""
    async with LedgerStore.open(tmp_path) as store:
        ml = await store.open_managed_ledger("orders", config=TWO)
        await add_all(ml, numbers(10, 14))
        await ml.set_property("who", "me")
        ended = await store.open_managed_ledger("ended")
        await add_all(ended, [b"last"])
        await ended.terminate()
        await store.open_managed_ledger("empty")
        await store.put_rows([(b"Tb", b"2"), (b"Ta", b"1"), (b"U", b"3")])
    return tmp_path


def planted(folder: Path, *rows: tuple[bytes, bytes | None]) -> None:
    """Write rows that only a bug could write."""
    engine = LogRocksdbEngine(folder)
    group = CommitGroup(rows=list(rows))
    engine.commit(group, sync=True)
    engine.index(group)
    engine.close()


def lose_index(folder: Path) -> None:
    (folder / "index" / "CURRENT").write_bytes(b"")


def damage(folder: Path, data: bytes) -> None:
    """Change a byte of an entry."""
    path = folder / "log" / "00000001.log"
    raw = bytearray(path.read_bytes())
    raw[raw.index(data)] ^= 1
    path.write_bytes(raw)


def read(store: StoppedStore, name: str, start: str = "0:0") -> list[bytes | str]:
    """Give the data of entries, and the reasons of what cannot be read."""
    stored = store.find(name)
    assert stored is not None
    found = store.entries(stored, Position.parse(start))
    return [each.data if isinstance(each, Entry) else each.reason for each in found]


def ids(store: StoppedStore, name: str) -> list[int]:
    stored = store.find(name)
    assert stored is not None
    return [record.ledger_id for record in stored.ledgers]


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_everything_of_a_whole_store(folder: Path, *, is_index_lost: bool) -> None:
    if is_index_lost:
        lose_index(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with StoppedStore(folder) as store:
        assert is_index_lost == store.is_index_lost
        assert int(is_index_lost) == len(store.damages)
        found = {each.name: each for each in store.managed_ledgers()}
        assert ["empty", "ended", "orders"] == store.names() == list(found)
        orders, first = found["orders"], ids(store, "orders")[0]
        last = [each.ledger_id for each in orders.ledgers if each.entries][-1]
        assert (5, 10, {"who": "me"}) == (orders.entries, orders.size, orders.properties)
        assert Position(first, 0) == orders.first_position
        assert Position(last, 0) == orders.last_position
        assert StoredState.OPEN is orders.state
        assert StoredState.TERMINATED is found["ended"].state
        assert found["ended"].last_position == found["ended"].terminated_at
        empty = found["empty"]
        assert (0, None, None) == (empty.entries, empty.first_position, empty.last_position)
        assert numbers(10, 14) == read(store, "orders")
        assert numbers(11, 14) == read(store, "orders", f"{first}:1")
        assert numbers(12, 14) == read(store, "orders", f"{first}:2")
        newest = store.last_entry(orders)
        assert newest is not None
        assert b"14" == newest.data
        assert store.last_entry(empty) is None
        assert [str(folder / "log" / "00000001.log")] == store.log_files(first)
        assert b"1" == store.get_row(b"Ta")
        assert [(b"Ta", b"1"), (b"Tb", b"2")] == store.scan_rows(b"T")
        assert store.find("nothing") is None
        assert store.find(f"ledger:{first}") is None
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_damaged_entry_is_skipped(folder: Path, *, is_index_lost: bool) -> None:
    if is_index_lost:
        lose_index(folder)
    damage(folder, b"13")
    with StoppedStore(folder) as store:
        expected = [b"10", b"11", b"12", "the data fails its CRC", b"14"]
        assert expected == read(store, "orders")


def test_entries_without_a_managed_ledger_have_a_name_of_their_own(folder: Path) -> None:
    with StoppedStore(folder) as store:
        first = ids(store, "orders")[0]
    planted(folder, (keys.ledger_key(1, first), None))
    with StoppedStore(folder) as store:
        [nameless] = [each for each in store.managed_ledgers() if each.name.startswith("ledger:")]
        assert f"ledger:{first}" == nameless.name
        assert (StoredState.NAMELESS, 2) == (nameless.state, nameless.entries)
        assert [b"10", b"11"] == read(store, nameless.name)
        assert nameless == store.find(nameless.name)
        found = store.verify(nameless, lambda name, position, data: "odd")
        assert ["odd", "odd"] == [each.reason for each in found.problems]


def test_closed_ledger_ends_with_the_count_of_its_record(folder: Path) -> None:
    with StoppedStore(folder) as store:
        first = ids(store, "orders")[0]
    record = LedgerRecord(ledger_id=first, entries=1, size=2, closed_ms=1)
    planted(folder, (keys.ledger_key(1, first), encode_ledger(record)))
    with StoppedStore(folder) as store:
        assert [b"10", *numbers(12, 14)] == read(store, "orders")


def test_entries_that_a_record_promises_are_missed(folder: Path) -> None:
    with StoppedStore(folder) as store:
        first = ids(store, "orders")[0]
    record = LedgerRecord(ledger_id=first, entries=5, size=9, closed_ms=1)
    planted(folder, (keys.ledger_key(1, first), encode_ledger(record)))
    with StoppedStore(folder) as store:
        found = read(store, "orders")
        assert [b"10", b"11", "entries 2 to 4 are not in the index"] == found[:3]


def test_records_that_cannot_be_read(folder: Path) -> None:
    with StoppedStore(folder) as store:
        first = ids(store, "orders")[0]
    planted(
        folder, (keys.ledger_key(1, first), b"\x09"), (keys.managed_ledger_key("ended"), b"\x09")
    )
    with StoppedStore(folder) as store:
        assert numbers(10, 14) == read(store, "orders"), "counted from the data"
        ended = store.find("ended")
        assert ended is not None
        assert (StoredState.UNREADABLE, {}, None) == (
            ended.state, ended.properties, ended.terminated_at,
        )  # fmt: skip
        [nameless] = [each for each in store.managed_ledgers() if each.name.startswith("ledger:")]
        assert [b"last"] == read(store, nameless.name)


def test_verification_of_all_and_of_one(folder: Path) -> None:
    damage(folder, b"13")

    def dislike(name: str, position: Position, data: bytes | None) -> str | None:
        return "not liked" if data in {b"last", b"11"} else None

    def described(problems: list[Problem]) -> set[tuple[str, str]]:
        return {(each.managed_ledger, each.reason) for each in problems}

    with StoppedStore(folder) as store:
        every = store.verify(None, dislike)
        assert (3, 6, 14) == (every.managed_ledger_count, every.entry_count, every.entry_bytes)
        own = {("orders", "not liked"), ("orders", "the data fails its CRC")}
        assert own | {("ended", "not liked")} == described(every.problems)
        one = store.verify(store.find("orders"), dislike)
        assert (1, 5) == (one.managed_ledger_count, one.entry_count)
        assert own == described(one.problems)


async def test_folders_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="holds no store"):
        StoppedStore(tmp_path / "none")
    async with LedgerStore.open(tmp_path / "used"):
        with pytest.raises(StoreInUse):
            StoppedStore(tmp_path / "used")


async def test_what_a_compaction_kept_comes_in_place_of_removed_ledgers(tmp_path: Path) -> None:
    async with LedgerStore.open(tmp_path) as store:
        ml = await store.open_managed_ledger("orders", config=TWO)
        positions = await add_all(ml, numbers(10, 17))
        writer = await ml.begin_compaction()
        kept = (positions[1], positions[2], positions[4])
        await writer.append([NewEntry(each, (b"kept",)) for each in kept])
        await writer.complete(positions[5])
        await ml.trim_before(positions[4])
    with StoppedStore(tmp_path) as stopped:
        stored = stopped.find("orders")
        assert stored is not None
        found = [each for each in stopped.entries(stored) if isinstance(each, Entry)]
        expected = [(each, b"kept") for each in kept[:2]]
        expected += list(zip(positions[4:], numbers(14, 17), strict=True))
        assert expected == [(each.position, each.data) for each in found]
        later = [each for each in stopped.entries(stored, positions[2]) if isinstance(each, Entry)]
        assert expected[1:] == [(each.position, each.data) for each in later]
        assert [] == stopped.verify(None, lambda name, position, data: None).problems
