"""A store that was in a folder is the same in a cluster."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kledger.ledger import (
    EARLIEST,
    Corrupt,
    InvalidArgument,
    LedgerStore,
    ManagedLedgerConfig,
    Position,
)
from kledger.ledger.cluster import folder_import
from kledger.ledger.cluster.database import SessionBroker
from kledger.ledger.cluster.folder_import import FolderImport, ImportProgress, import_data_folder
from kledger.ledger.engine.base import CommitGroup
from kledger.ledger.engine.errors import StorageWriteFailed
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.engine.memory import MemoryEngine
from tests.ledger.cluster.model_objects import ObjectFault
from tests.ledger.cluster.words import OBJECTS, ModelCluster
from tests.ledger.engine.words import store
from tests.ledger.words import datas

SMALL = ManagedLedgerConfig(max_entries_per_ledger=3)
ENTRIES = [b"entry %d" % number for number in range(10)]


async def written(folder: Path) -> Position:
    """A store with a ledger of ten entries, a cursor in it, and rows; return the cursor's end."""
    async with LedgerStore.open(folder) as opened:
        ml = await opened.open_managed_ledger("orders", config=SMALL)
        cursor = await ml.open_cursor("reader")
        positions = [await ml.add_entry(each) for each in ENTRIES]
        await cursor.mark_delete(positions[4])
        await opened.put_rows([(b"a", b"1"), (b"b", b"2")])
        return cursor.mark_delete_position


async def check(cluster: ModelCluster, mark_delete: Position) -> None:
    async with LedgerStore.open(None, engine=cluster.own()) as opened:
        ml = await opened.open_managed_ledger("orders", config=SMALL)
        assert ENTRIES == datas(await ml.read_entries(EARLIEST, 1 << 20))
        assert mark_delete == (await ml.open_cursor("reader")).mark_delete_position
        assert [(b"a", b"1"), (b"b", b"2")] == opened.scan_rows()
        await ml.add_entry(b"more")
        assert [*ENTRIES, b"more"] == datas(await ml.read_entries(EARLIEST, 1 << 20))


def imported(folder: Path, cluster: ModelCluster) -> ImportProgress:
    source = LogRocksdbEngine(folder)
    try:
        return FolderImport(source, cluster.own()).run(lambda _: None)
    finally:
        source.close()


async def test_folder_is_the_same_in_a_cluster(tmp_path: Path) -> None:
    mark_delete = await written(tmp_path)
    cluster = ModelCluster(limits=OBJECTS)
    done = imported(tmp_path, cluster)
    assert (10, sum(map(len, ENTRIES))) == (done.entries, done.size)
    await check(cluster, mark_delete)


async def test_import_that_was_cut_off_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_import, "GROUP_BYTES", 1)
    mark_delete = await written(tmp_path)
    cluster = ModelCluster(limits=OBJECTS)
    puts = iter(range(100))
    cluster.object_fault = lambda request: (
        ObjectFault.FAILED if request == "put" and next(puts) >= 4 else ObjectFault.NONE
    )
    with pytest.raises(StorageWriteFailed):
        imported(tmp_path, cluster)
    cluster.object_fault = lambda _request: ObjectFault.NONE
    assert 6 == imported(tmp_path, cluster).entries
    await check(cluster, mark_delete)


def test_cluster_with_data_is_refused() -> None:
    cluster = ModelCluster()
    engine = cluster.own()
    store(engine, CommitGroup(rows=[(b"a", b"1")]))
    with pytest.raises(InvalidArgument, match="a cluster without data"):
        FolderImport(MemoryEngine(), engine).run(lambda _: None)


async def test_missing_entry_ends_an_import(tmp_path: Path) -> None:
    await written(tmp_path)
    source = LogRocksdbEngine(tmp_path)
    engine = ModelCluster().own()
    last_entry: Callable[[int], int] = source.last_entry
    # A gap at the end.
    source.last_entry = lambda ledger_id: last_entry(ledger_id) + 1  # type: ignore[method-assign]
    with pytest.raises(Corrupt, match="no entry"):
        FolderImport(source, engine).run(lambda _: None)
    source.close()
    assert 1 == len(engine.scan(b"", b"\xff")), "no row but that of reserved ids"


def test_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_import, "ROWS_BYTES_MAX", 10)
    source = MemoryEngine()
    store(source, CommitGroup(rows=[(b"a", b"0123456789")]))
    with pytest.raises(InvalidArgument, match="more than 0 MiB of rows"):
        FolderImport(source, ModelCluster().own()).run(lambda _: None)


def test_folder_without_a_store_is_refused(tmp_path: Path) -> None:
    cluster = ModelCluster()
    with pytest.raises(InvalidArgument, match="expected the data folder of a server"):
        import_data_folder(cluster.tables, tmp_path, options={}, report=lambda _: None)
    assert [] == [*tmp_path.iterdir()]


async def test_owner_is_not_disturbed(tmp_path: Path) -> None:
    await written(tmp_path)
    cluster = ModelCluster()
    session = cluster.tables.begin_session(SessionBroker(1))
    cluster.tables.acquire(session)
    with pytest.raises(InvalidArgument, match="a broker owns the cluster"):
        import_data_folder(cluster.tables, tmp_path, options={}, report=lambda _: None)
    observed = cluster.tables.observe()
    assert observed is not None
    assert session == observed.session
