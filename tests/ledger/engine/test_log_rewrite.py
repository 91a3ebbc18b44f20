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
PIECE_BYTES = 1000


def opened(folder: Path, **options: object) -> LogRocksdbEngine:
    return LogRocksdbEngine(folder, file_bytes_max=FILE_BYTES, **options)  # type: ignore[arg-type]


def size_of(entry_id: int) -> int:
    return 150 + entry_id % 7 * 31


def fill(engine: LogRocksdbEngine | FaultInjectingEngine, *, sync: bool = True) -> None:
    """Store entries of three ledgers in turn, so that every file has some of each."""
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
    engine: LogRocksdbEngine | FaultInjectingEngine, *, bytes_max: int = PIECE_BYTES
) -> CommitGroup | None:
    return engine.next_moves(dead_share_max=0.2, bytes_max=bytes_max)


def pieces(
    engine: LogRocksdbEngine | FaultInjectingEngine, *, bytes_max: int = PIECE_BYTES
) -> Iterator[CommitGroup]:
    """Yield what the engine wants moved, until it is content."""
    for _ in range(200):
        piece = next_moves(engine, bytes_max=bytes_max)
        if piece is None:
            return
        if not piece.is_empty:
            yield piece
        if isinstance(engine, LogRocksdbEngine) and engine.checkpoint_due():
            engine.checkpoint()
    raise AssertionError("it never ends")


def first_piece(engine: LogRocksdbEngine, *, bytes_max: int = PIECE_BYTES) -> CommitGroup:
    """Return the first group that moves something; the file before it is sealed when asked for."""
    for piece in pieces(engine, bytes_max=bytes_max):
        if piece.moves:
            return piece
        store(engine, piece)
    raise AssertionError("nothing to move")


def rewrite(engine: LogRocksdbEngine | FaultInjectingEngine, *, sync: bool = True) -> int:
    count = 0
    for piece in pieces(engine):
        store(engine, piece, sync=sync)
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
        place = decode_entry(key, value)
        ids = place.file, ledger_id_in(key)
        counted[ids] = counted.get(ids, 0) + HEADER_SIZE + place.data_length
    return counted


def check_all_there(engine: LogRocksdbEngine) -> None:
    """What lives is there with its bytes, what was deleted is gone, the accounts are right."""
    for ledger_id in (KEPT, LAST):
        assert expected(ledger_id) == contents(engine, ledger_id)
    for ledger_id in (DELETED, DELETED + 100, DELETED + 200):
        assert [] == contents(engine, ledger_id)
    assert recounted(engine) == space_rows(engine)


def check_folder(folder: Path) -> None:
    """Start on what a crash left; look, restart, look again, and let the doctor look."""
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


def test_mostly_dead_files_are_emptied_and_go(tmp_path: Path) -> None:
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
    for piece in pieces(engine):
        for move in piece.moves:
            files.setdefault(move.file, []).append(move[:2])
        assert [move[:2] for move in piece.moves] == [entry[:2] for entry in piece.entries]
        assert sum(len(data) for _, _, data in piece.entries) < PIECE_BYTES + 400
        store(engine, piece)
    assert len(files) > 2
    assert all(moved == sorted(moved) for moved in files.values())
    engine.close()


def test_ledger_dropped_while_its_entries_are_copied_stays_gone(tmp_path: Path) -> None:
    """Three moments: before the copy is committed, between commit and index, in the same group."""
    for moment in range(3):
        folder = tmp_path / str(moment)
        engine = filled(folder)
        piece = first_piece(engine)
        assert {KEPT} == {move.ledger_id for move in piece.moves}
        drop = CommitGroup(drops=[KEPT])
        if moment == 0:
            store(engine, drop, piece)
        elif moment == 1:
            engine.commit(drop, sync=True)
            engine.commit(piece, sync=True)
            engine.index(drop)
            engine.index(piece)
        else:
            piece.drops = [KEPT]
            store(engine, piece)
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


def test_piece_that_is_committed_twice_moves_once(tmp_path: Path) -> None:
    """Two searches found the same entries; only the one that lands first counts."""
    engine = filled(tmp_path)
    piece = first_piece(engine, bytes_max=200)
    assert piece.moves[0].ledger_id in engine._index.ledgers_in(piece.moves[0].file)
    again = CommitGroup(entries=[*piece.entries], moves=[*piece.moves])
    engine.commit(piece, sync=True)
    engine.commit(again, sync=True)
    engine.index(piece)
    engine.index(again)
    third = CommitGroup(entries=[*piece.entries], moves=[*piece.moves])
    check_all_there(engine)
    store(engine, third)
    check_all_there(engine)
    crash_image.copy_after_kill(engine, tmp_path / "killed")
    engine.close()
    check_folder(tmp_path / "killed")


def test_piece_that_was_never_committed_is_found_again(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    for number, piece in enumerate(pieces(engine)):
        if number % 3:
            store(engine, piece)
    engine.checkpoint()
    check_all_there(engine)
    assert disk_bytes(engine) < 1.3 * sum(space_rows(engine).values()) + FILE_BYTES // 32
    engine.close()


def test_new_entries_may_stand_in_a_group_with_moves(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    piece = first_piece(engine)
    new = engine.last_entry(KEPT) + 1
    piece.entries = [(50, 0, b"new"), *piece.entries, (KEPT, new, b"newest")]
    piece.rows = [(b"count", b"99")]
    store(engine, piece)
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


def test_reader_that_has_looked_up_the_old_place_finds_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole rewrite, unlinking included, happens between looking up and reading."""
    engine = filled(tmp_path)
    look_up = engine._index.locations
    looked_up = []

    def places_then_rewrite(*arguments: int) -> object:
        found = look_up(*arguments)
        monkeypatch.undo()
        rewrite(engine)
        looked_up.append({place.file for place in found})
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
    place = engine._index.locations(KEPT, 3, 3, 1)[0]
    path = log_file(tmp_path, place.file)
    raw = bytearray(path.read_bytes())
    raw[place.position + HEADER_SIZE] ^= 1
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
    """Rewrite all, one step at a time; checkpoints come late, so that a replay has much to do."""
    for number in range(300):
        if (piece := next_moves(engine)) is None:
            return
        if not piece.is_empty:
            engine.commit(piece, sync=sync)
            yield
            engine.index(piece)
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
        for number, piece in enumerate(pieces(engine)):
            if number == fail_at:
                engine.fail_next(op)  # type: ignore[arg-type]
                with pytest.raises(Exception, match="injected"):
                    engine.commit(piece, sync=True)
                break
            store(engine, piece)
        engine.drop_unsynced()
        check_all_there(inner)
        rewrite(engine)
        check_all_there(inner)
        engine.close()
        check_folder(folder)


@EVERY
def test_log_cut_at_every_frame_of_the_rewritten_groups(tmp_path: Path, every: int) -> None:
    """No checkpoint comes, so nothing is unlinked: a cut copy means the old place counts."""
    engine = opened(tmp_path / "live")
    fill(engine, sync=False)
    drop_most(engine, sync=False)
    begin = engine._log.end
    cuts: dict[int, set[int]] = {}
    piece_count = 0
    while (piece := next_moves(engine)) is not None and piece_count < 25:
        start = engine._log.end
        store(engine, piece, sync=False)
        end = engine._log.end
        position = start.position if start.file == end.file else 0
        near = cuts.setdefault(end.file, {0})
        for _, _, data in piece.entries:
            near |= {position, position + 1, position + HEADER_SIZE + len(data) // 2}
            position += HEADER_SIZE + len(data)
        near |= {position, position + HEADER_SIZE + 5, end.position - 1, end.position}
        piece_count += 1
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
    """Entries and their moves are all behind the watermark, and wait together."""
    engine = LogRocksdbEngine(tmp_path / "live", file_bytes_max=4000)
    for number in range(20):
        entries = [(ledger_id, number, payload(number, 200)) for ledger_id in (7, 8, 9)]
        store(engine, CommitGroup(entries=[*entries]))
    store(engine, CommitGroup(drops=[8, 9]))
    for _ in range(6):
        piece = next_moves(engine)
        assert piece is not None
        store(engine, piece)
    before = space_rows(engine)
    crash_image.copy_after_kill(engine, tmp_path / "image")
    engine.close()
    engine = LogRocksdbEngine(tmp_path / "image", file_bytes_max=4000)
    assert before == space_rows(engine) == recounted(engine)
    assert [payload(number, 200) for number in range(20)] == contents(engine, 7)
    engine.close()
