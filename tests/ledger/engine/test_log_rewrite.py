"""Files that are mostly dead are emptied, and no crash in between loses or revives an entry."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kledger.ledger.engine import crash_image
from kledger.ledger.engine.base import CommitGroup, Move
from kledger.ledger.engine.errors import EntryMissing
from kledger.ledger.engine.faulty import FaultInjectingEngine
from kledger.ledger.engine.index.index_keys import (
    ENTRY_END,
    ENTRY_PREFIX,
    decode_entry,
    ledger_id_in,
)
from kledger.ledger.engine.log.frames import HEADER_SIZE
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from kledger.ledger.inspection.folder_inspection import FolderInspection
from tests.ledger.engine.words import log_file, payload, store

FILE_BYTES = 16_000
KEPT, DELETED, LAST = 7, 8, 9
COUNT = 120
CHUNK_BYTES = 1000


def opened(folder: Path, **options: object) -> LogRocksdbEngine:
    return LogRocksdbEngine(folder, file_bytes_max=FILE_BYTES, **options)  # type: ignore[arg-type]


def size_of(entry_id: int) -> int:
    return 150 + entry_id % 7 * 31


def fill(engine: LogRocksdbEngine | FaultInjectingEngine, *, sync: bool = True) -> None:
    """Store entries of three ledgers alternately, so that every file has some of each."""
    for entry_id in range(COUNT):
        group = CommitGroup(rows=[(b"count", b"%d" % entry_id)])
        for ledger_id in (KEPT, DELETED, DELETED + 100, DELETED + 200, LAST):
            if ledger_id in {KEPT, LAST} and entry_id % 3:
                continue
            data = payload(1000 * ledger_id + entry_id, size_of(entry_id))
            next_id = engine.last_entry(ledger_id) + 1
            group.entries.append((ledger_id, next_id, data))
        store(engine, group, sync=sync)


def drop_most(engine: LogRocksdbEngine | FaultInjectingEngine, *, sync: bool = True) -> None:
    drops = [DELETED, DELETED + 100, DELETED + 200]
    store(engine, CommitGroup(drops=drops), sync=sync)


def filled(folder: Path) -> LogRocksdbEngine:
    engine = opened(folder)
    fill(engine)
    drop_most(engine)
    engine.checkpoint()
    return engine


def next_moves(
    engine: LogRocksdbEngine | FaultInjectingEngine, *, bytes_max: int = CHUNK_BYTES
) -> CommitGroup | None:
    return engine.next_moves(dead_share_max=0.2, bytes_max=bytes_max)


def chunks(
    engine: LogRocksdbEngine | FaultInjectingEngine, *, bytes_max: int = CHUNK_BYTES
) -> Iterator[CommitGroup]:
    """Yield what the engine wants moved, until it is content."""
    for _ in range(200):
        chunk = next_moves(engine, bytes_max=bytes_max)
        if chunk is None:
            return
        if not chunk.is_empty:
            yield chunk
        if isinstance(engine, LogRocksdbEngine) and engine.checkpoint_due():
            engine.checkpoint()
    raise AssertionError("it never ends")


def first_chunk(engine: LogRocksdbEngine, *, bytes_max: int = CHUNK_BYTES) -> CommitGroup:
    """Return the first group that moves something; the file before it is sealed when asked for."""
    for chunk in chunks(engine, bytes_max=bytes_max):
        if chunk.moves:
            return chunk
        store(engine, chunk)
    raise AssertionError("nothing to move")


def rewrite(engine: LogRocksdbEngine | FaultInjectingEngine, *, sync: bool = True) -> int:
    count = 0
    for chunk in chunks(engine):
        store(engine, chunk, sync=sync)
        count += 1
    engine.checkpoint()
    return count


def disk_bytes(engine: LogRocksdbEngine) -> int:
    """Return the size of the log without the zeros ahead of its end."""
    end, files = engine._log.end, engine._files
    return sum(files.size(file) for file in files.numbers() if file < end.file) + end.position


def contents(engine: LogRocksdbEngine | FaultInjectingEngine, ledger_id: int) -> list[bytes]:
    last = engine.last_entry(ledger_id)
    if last < 0:
        return []
    found: list[bytes] = []
    while len(found) <= last:
        found += map(bytes, engine.read(ledger_id, len(found), last, 1 << 20))
    return found


def expected(ledger_id: int) -> list[bytes]:
    ids = range(0, COUNT, 3) if ledger_id in {KEPT, LAST} else range(COUNT)
    return [payload(1000 * ledger_id + each, size_of(each)) for each in ids]


def space_rows(engine: LogRocksdbEngine) -> dict[tuple[int, int], int]:
    space = engine._index.space
    return {
        (file, ledger_id): size
        for file in space.live_files()
        for ledger_id, size in space.ledgers_in(file).items()
    }


def recounted(engine: LogRocksdbEngine) -> dict[tuple[int, int], int]:
    """Count from the entries in the index what each ledger takes in each file."""
    engine._index._settle()
    counted: dict[tuple[int, int], int] = {}
    for key, value in engine._index._table.rows(ENTRY_PREFIX, ENTRY_END):
        location = decode_entry(key, value)
        ids = location.file, ledger_id_in(key)
        counted[ids] = counted.get(ids, 0) + HEADER_SIZE + location.data_length
    return counted


def check_all_there(engine: LogRocksdbEngine) -> None:
    """Check that live entries have their bytes, deleted ones are missing, and space is right."""
    for ledger_id in (KEPT, LAST):
        assert expected(ledger_id) == contents(engine, ledger_id)
    for ledger_id in (DELETED, DELETED + 100, DELETED + 200):
        assert [] == contents(engine, ledger_id)
    assert recounted(engine) == space_rows(engine)


def check_folder(folder: Path) -> None:
    """Check a folder after a crash, after a restart, and with an inspection."""
    engine = opened(folder)
    check_all_there(engine)
    before = space_rows(engine)
    engine.close()
    engine = opened(folder)
    assert before == space_rows(engine)
    engine.close()
    found = FolderInspection(folder)
    assert [] == found.damages
    for ledger_id in (KEPT, LAST):
        assert expected(ledger_id) == [data for _, _, data in found.entries(ledger_id)]
    found.close()


def test_mostly_dead_files_are_emptied_and_removed(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    live = sum(space_rows(engine).values())
    assert disk_bytes(engine) > 3 * live

    assert rewrite(engine) > 5
    check_all_there(engine)
    assert live == sum(space_rows(engine).values())
    assert disk_bytes(engine) < 1.3 * live + FILE_BYTES // 32
    assert next_moves(engine) is None
    engine.close()
    check_folder(tmp_path)


def test_everything_dead_leaves_next_to_nothing(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    store(engine, CommitGroup(drops=[KEPT, LAST]))
    seal = next_moves(engine)
    assert seal is not None
    assert (True, []) == (seal.seals, seal.entries)
    store(engine, seal)
    engine.checkpoint()
    assert disk_bytes(engine) < 100
    engine.close()


def test_content_log_is_left_alone(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    fill(engine)
    assert next_moves(engine) is None
    store(engine, CommitGroup(drops=[LAST]))
    assert next_moves(engine) is None
    engine.close()


def test_entries_are_moved_in_the_order_of_ledgers(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    files: dict[int, list[tuple[int, int]]] = {}
    for chunk in chunks(engine):
        for move in chunk.moves:
            files.setdefault(move.file, []).append(move[:2])
        assert [move[:2] for move in chunk.moves] == [entry[:2] for entry in chunk.entries]
        assert sum(len(data) for _, _, data in chunk.entries) < CHUNK_BYTES + 400
        store(engine, chunk)
    assert len(files) > 2
    assert all(moved == sorted(moved) for moved in files.values())
    engine.close()


def test_ledger_dropped_while_its_entries_are_moved_stays_dropped(tmp_path: Path) -> None:
    """Three moments: before the copy is committed, between commit and index, in the same group."""
    for moment in range(3):
        folder = tmp_path / str(moment)
        engine = filled(folder)
        chunk = first_chunk(engine)
        assert {KEPT} == {move.ledger_id for move in chunk.moves}
        drop = CommitGroup(drops=[KEPT])
        if moment == 0:
            store(engine, drop, chunk)
        elif moment == 1:
            engine.commit(drop, sync=True)
            engine.commit(chunk, sync=True)
            engine.index(drop)
            engine.index(chunk)
        else:
            chunk.drops = [KEPT]
            store(engine, chunk)
        for life in range(3):
            assert -1 == engine.last_entry(KEPT)
            assert recounted(engine) == space_rows(engine)
            if life == 0:
                crash_image.copy_after_kill(engine, tmp_path / "killed")
                engine.close()
                engine = opened(folder)
            elif life == 1:
                engine.close()
                engine = opened(tmp_path / "killed")
        rewrite(engine)
        assert expected(LAST) == contents(engine, LAST)
        engine.close()


def test_chunk_that_is_committed_twice_moves_once(tmp_path: Path) -> None:
    """Two searches found the same entries; only the first commit counts."""
    engine = filled(tmp_path)
    chunk = first_chunk(engine, bytes_max=200)
    assert chunk.moves[0].ledger_id in engine._index.ledgers_in(chunk.moves[0].file)
    again = CommitGroup(entries=[*chunk.entries], moves=[*chunk.moves])
    engine.commit(chunk, sync=True)
    engine.commit(again, sync=True)
    engine.index(chunk)
    engine.index(again)
    third = CommitGroup(entries=[*chunk.entries], moves=[*chunk.moves])
    check_all_there(engine)
    store(engine, third)
    check_all_there(engine)
    crash_image.copy_after_kill(engine, tmp_path / "killed")
    engine.close()
    check_folder(tmp_path / "killed")


def test_chunk_that_was_not_committed_is_found_again(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    for number, chunk in enumerate(chunks(engine)):
        if number % 3:
            store(engine, chunk)
    engine.checkpoint()
    check_all_there(engine)
    assert disk_bytes(engine) < 1.3 * sum(space_rows(engine).values()) + FILE_BYTES // 32
    engine.close()


def test_group_with_moves_may_have_new_entries(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    chunk = first_chunk(engine)
    new = engine.last_entry(KEPT) + 1
    chunk.entries = [(50, 0, b"new"), *chunk.entries, (KEPT, new, b"newest")]
    chunk.rows = [(b"count", b"99")]
    store(engine, chunk)
    assert b"99" == engine.get(b"count")
    assert [b"new"] == contents(engine, 50)
    assert [*expected(KEPT), b"newest"] == contents(engine, KEPT)
    assert recounted(engine) == space_rows(engine)
    crash_image.copy_after_kill(engine, tmp_path / "killed")
    engine.close()
    engine = opened(tmp_path / "killed")
    assert [*expected(KEPT), b"newest"] == contents(engine, KEPT)
    assert recounted(engine) == space_rows(engine)
    engine.close()


def test_reader_with_old_locations_finds_moved_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole rewrite, unlinking included, happens between lookup and read."""
    engine = filled(tmp_path)
    look_up = engine._index.locations
    looked_up = []

    def places_then_rewrite(*arguments: int) -> object:
        found = look_up(*arguments)
        monkeypatch.undo()
        rewrite(engine)
        looked_up.append({location.file for location in found})
        return found

    monkeypatch.setattr(engine._index, "locations", places_then_rewrite)
    assert expected(KEPT) == [*map(bytes, engine.read(KEPT, 0, COUNT, 1 << 20))]
    assert not any(log_file(tmp_path, file).exists() for file in looked_up[0])

    stale = [look_up(KEPT, 0, COUNT, 1 << 20)]
    store(engine, CommitGroup(drops=[KEPT, LAST]))
    rewrite(engine)
    monkeypatch.setattr(
        engine._index, "locations", lambda *each: stale.pop() if stale else look_up(*each)
    )
    with pytest.raises(EntryMissing):
        engine.read(KEPT, 0, COUNT, 1 << 20)
    engine.close()


def test_file_with_a_damaged_entry_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = filled(tmp_path)
    location = engine._index.locations(KEPT, 3, 3, 1)[0]
    path = log_file(tmp_path, location.file)
    raw = bytearray(path.read_bytes())
    raw[location.position + HEADER_SIZE] ^= 1
    path.write_bytes(raw)
    rewrite(engine)

    assert path.exists()
    assert "keeps its dead space" in caplog.text
    assert recounted(engine) == space_rows(engine)
    assert expected(LAST) == contents(engine, LAST)
    assert len(list((tmp_path / "log").iterdir())) < 6
    engine.close()


EVERY = pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])


@EVERY
@pytest.mark.parametrize("sync", [True, False])
def test_crash_after_every_step_keeps_what_lives(tmp_path: Path, sync: bool, every: int) -> None:
    """Killed, and with everything unsynced lost, after every commit, index and checkpoint."""
    engine, image = filled(tmp_path / "live"), tmp_path / "image"
    step = -1
    for step, _ in enumerate(steps(engine, sync=sync)):
        if step % every == 0:
            crash_image.copy_after_kill(engine, image)
            check_folder(image)
            crash_image.copy_after_power_cut(engine, image)
            check_folder(image)
    assert step > 40
    check_all_there(engine)
    engine.close()


def steps(engine: LogRocksdbEngine, *, sync: bool) -> Iterator[None]:
    """Rewrite everything step by step; checkpoints are late, so that a replay has much to do."""
    for number in range(300):
        if (chunk := next_moves(engine)) is None:
            return
        if not chunk.is_empty:
            engine.commit(chunk, sync=sync)
            yield
            engine.index(chunk)
            yield
        if engine.checkpoint_due() and number % 3 == 0:
            engine.checkpoint()
            yield
    raise AssertionError("it never ends")


@pytest.mark.parametrize("op", ["commit", "sync"])
def test_failure_of_any_write_then_a_power_cut_keeps_what_lives(tmp_path: Path, op: str) -> None:
    for fail_at in range(12):
        folder = tmp_path / str(fail_at)
        inner = filled(folder)
        engine = FaultInjectingEngine(inner)
        for number, chunk in enumerate(chunks(engine)):
            if number == fail_at:
                engine.fail_next(op)  # type: ignore[arg-type]
                with pytest.raises(Exception, match="injected"):
                    engine.commit(chunk, sync=True)
                break
            store(engine, chunk)
        engine.drop_unsynced()
        check_all_there(inner)
        rewrite(engine)
        check_all_there(inner)
        engine.close()
        check_folder(folder)


@EVERY
def test_log_cut_at_every_frame_of_the_rewritten_groups(tmp_path: Path, every: int) -> None:
    """There is no checkpoint, so nothing is unlinked: if a copy is cut, the old location counts."""
    engine = opened(tmp_path / "live")
    fill(engine, sync=False)
    drop_most(engine, sync=False)
    begin = engine._log.end
    cuts: dict[int, set[int]] = {}
    chunk_count = 0
    while (chunk := next_moves(engine)) is not None and chunk_count < 25:
        start = engine._log.end
        store(engine, chunk, sync=False)
        end = engine._log.end
        position = start.position if start.file == end.file else 0
        near = cuts.setdefault(end.file, {0})
        for _, _, data in chunk.entries:
            near |= {position, position + 1, position + HEADER_SIZE + len(data) // 2}
            position += HEADER_SIZE + len(data)
        near |= {position, position + HEADER_SIZE + 5, end.position - 1, end.position}
        chunk_count += 1
    crash_image.copy_after_kill(engine, tmp_path / "image")
    engine.close()
    assert sum(map(len, cuts.values())) > 100
    for file, positions in cuts.items():
        for position in sorted(positions)[::every]:
            if (file, position) < (begin.file, begin.position):
                continue
            folder = tmp_path / "cut"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(tmp_path / "image", folder)
            for path in (folder / "log").iterdir():
                if int(path.stem) > file:
                    path.unlink()
            with log_file(folder, file).open("r+b") as log:
                log.truncate(position)
            cut = opened(folder)
            check_all_there(cut)
            cut.close()


def test_move_of_an_unknown_entry_changes_nothing(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    before = space_rows(engine)
    stray = CommitGroup(entries=[(77, 0, b"x")], moves=[Move(77, 0, 1, 0)])
    store(engine, stray)
    assert -1 == engine.last_entry(77)
    assert before == space_rows(engine) == recounted(engine)
    engine.close()


def test_replay_that_has_everything_to_do_counts_as_before(tmp_path: Path) -> None:
    """Entries and their moves are all after the watermark, and wait together."""
    engine = LogRocksdbEngine(tmp_path / "live", file_bytes_max=4000)
    for number in range(20):
        entries = [(ledger_id, number, payload(number, 200)) for ledger_id in (7, 8, 9)]
        store(engine, CommitGroup(entries=[*entries]))
    store(engine, CommitGroup(drops=[8, 9]))
    for _ in range(6):
        chunk = next_moves(engine)
        assert chunk is not None
        store(engine, chunk)
    before = space_rows(engine)
    crash_image.copy_after_kill(engine, tmp_path / "image")
    engine.close()
    engine = LogRocksdbEngine(tmp_path / "image", file_bytes_max=4000)
    assert before == space_rows(engine) == recounted(engine)
    assert [payload(number, 200) for number in range(20)] == contents(engine, 7)
    engine.close()
