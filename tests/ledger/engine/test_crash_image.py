"""The crash proof: after any crash a start finds a prefix of whole groups, or refuses."""

import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import pytest

from kledger.ledger.engine import crash_image
from kledger.ledger.engine.base import Buffer, CommitGroup
from kledger.ledger.engine.errors import EntryCorrupt, LogCorrupt
from kledger.ledger.engine.faulty import FaultInjectingEngine
from kledger.ledger.engine.log.entry_log import PlacedGroup
from kledger.ledger.engine.log.log_files import LogFiles
from kledger.ledger.engine.log.log_scan import LogScan
from kledger.ledger.engine.log.recovery_plan import Refuse, Watermark, plan_recovery
from kledger.ledger.engine.log_rocksdb import LogRocksdbEngine
from tests.ledger.engine.words import (
    all_groups,
    entry_count,
    group_of,
    log_file,
    payload,
    reopened_count,
    store,
)


def image_of(engine: LogRocksdbEngine, folder: Path) -> Path:
    """Copy what a killed process leaves, and close the engine."""
    crash_image.copy_after_kill(engine, folder)
    engine.close()
    return folder


def changed(image: Path, target: Path, change: Callable[[bytearray], None]) -> Path:
    """Copy an image and change its first log file."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(image, target)
    raw = bytearray(log_file(target).read_bytes())
    change(raw)
    log_file(target).write_bytes(raw)
    return target


@pytest.mark.parametrize("sync", [True, False])
def test_kill_loses_nothing_that_was_written(tmp_path: Path, sync: bool) -> None:
    engine = LogRocksdbEngine(tmp_path / "live")
    for number in range(20):
        store(engine, group_of(number), sync=sync)
        if number == 7:
            engine.checkpoint()
        crash_image.copy_after_kill(engine, tmp_path / "image")
        assert number + 1 == reopened_count(tmp_path / "image")
    engine.close()


def test_killed_folder_can_be_opened_and_killed_again(tmp_path: Path) -> None:
    source = tmp_path / "0"
    for life in range(4):
        engine = LogRocksdbEngine(source)
        assert 3 * life == entry_count(engine)
        store(engine, *map(group_of, range(3 * life, 3 * life + 3)))
        source = image_of(engine, tmp_path / str(life + 1))
    assert 12 == reopened_count(source)


RECORDED = ["s", "u", "u", "s", "c", "u", "d", "s", "u", "u", "c", "s", "r", "s", "u", "c", "s"]
"""s: synced group, u: unsynced group, c: checkpoint, d: drop of another ledger, r: long group."""


def recorded_run(engine: FaultInjectingEngine | LogRocksdbEngine, steps: int) -> int:
    """Make the first steps of the run; returns how many groups are durable then."""
    count = durable = 0
    for step in RECORDED[:steps]:
        if step == "c":
            engine.checkpoint()
            durable = count
            continue
        group = group_of(count)
        if step == "d":
            group.entries.append((5, count, b"short-lived"))
            store(engine, group, sync=False)
            group = group_of(count + 1)
            group.drops.append(5)
            count += 1
        elif step == "r":
            group.entries += [(9, each, payload(each, 3000)) for each in range(50)]
        store(engine, group, sync=step == "s")
        count += 1
        durable = count if step == "s" else durable
    return durable


@pytest.mark.parametrize("steps", range(len(RECORDED) + 1))
@pytest.mark.parametrize("where", ["memory", "disk"])
def test_everything_unsynced_is_dropped_after_any_operation(
    tmp_path: Path, where: str, steps: int
) -> None:
    engine = FaultInjectingEngine(None if where == "memory" else tmp_path)
    durable = recorded_run(engine, steps)
    engine.drop_unsynced()

    assert durable == entry_count(engine)
    store(engine, group_of(durable))
    engine.drop_unsynced()
    assert durable + 1 == entry_count(engine)
    engine.close()


@pytest.mark.parametrize("op", ["commit", "sync"])
@pytest.mark.parametrize("at", range(1, 13))
def test_everything_unsynced_is_dropped_in_the_middle_of_any_operation(
    tmp_path: Path, op: str, at: int
) -> None:
    """The operation fails halfway, then the power is cut."""
    engine = FaultInjectingEngine(tmp_path)
    for number in range(at):
        store(engine, group_of(number))
    engine.fail_next(op)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="injected"):
        engine.commit(group_of(at), sync=True)
    engine.drop_unsynced()
    assert at == entry_count(engine)
    engine.close()


def recovered(folder: Path, groups: list[CommitGroup]) -> int | Refuse:
    """Decide about a log as a start does, without an index: how many groups survive, or a refusal.

    Every byte of what survives is compared.
    """
    files = LogFiles(folder / "log")
    new = Watermark(1, 0, 0)
    scan = LogScan(files, new)
    found = [CommitGroup(_as_bytes(each.group.entries), each.group.rows) for each in scan.groups()]
    plan = plan_recovery(
        watermark=new,
        end=scan.end,
        damage=scan.damage,
        later_commits=scan.later_commits,
        files=scan.files,
    )
    files.close()
    if isinstance(plan, Refuse):
        return plan
    assert groups[: len(found)] == found
    return len(found)


def _as_bytes(entries: list[tuple[int, int, Buffer]]) -> list[tuple[int, int, Buffer]]:
    return [(ledger_id, entry_id, bytes(data)) for ledger_id, entry_id, data in entries]


def cut_logs(tmp_path: Path, *, sync: bool, step: int) -> Iterator[tuple[Path, int]]:
    """Yield folders whose log is cut inside its last three groups, and how many are whole."""
    engine = LogRocksdbEngine(tmp_path / "live")
    placed = all_groups(engine, *map(group_of, range(6)), sync=sync)
    image = image_of(engine, tmp_path / "image")
    ends = [each.end.position for each in placed]
    edges = {end + near for end in ends[2:] for near in (-1, 0, 1)}
    for cut in range(ends[2], ends[-1] + 1):
        if cut in edges or cut % step == 0:
            folder = changed(image, tmp_path / "cut", partial(_cut, cut))
            yield folder, sum(end <= cut for end in ends)


def _cut(position: int, raw: bytearray) -> None:
    del raw[position:]


@pytest.mark.parametrize("sync", [True, False])
def test_log_cut_at_every_byte_is_cut_back_to_whole_groups(tmp_path: Path, sync: bool) -> None:
    groups = [*map(group_of, range(6))]
    for folder, whole in cut_logs(tmp_path, sync=sync, step=1):
        assert whole == recovered(folder, groups)


@pytest.mark.parametrize("step", [64, pytest.param(1, marks=pytest.mark.slow)])
def test_start_on_a_cut_log_finds_the_whole_groups(tmp_path: Path, step: int) -> None:
    for folder, whole in cut_logs(tmp_path, sync=True, step=step):
        assert whole == reopened_count(folder)


def test_log_cut_and_used_on_shows_no_old_group(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path / "live")
    placed = all_groups(engine, *map(group_of, range(6)), sync=False)
    image = image_of(engine, tmp_path / "image")
    cut = placed[3].end.position + 7
    folder = changed(image, tmp_path / "cut", partial(_cut, cut))
    engine = LogRocksdbEngine(folder)
    store(engine, group_of(4))
    again = image_of(engine, tmp_path / "again")
    assert 5 == reopened_count(again)


def flipped_logs(
    tmp_path: Path, groups: list[CommitGroup], *, sync: bool, count: int
) -> Iterator[tuple[Path, int, int]]:
    """Yield folders with one flipped bit, the group that it hit, and where that group begins."""
    engine = LogRocksdbEngine(tmp_path / "live")
    placed = all_groups(engine, *groups, sync=sync)
    image = image_of(engine, tmp_path / "image")
    rng = random.Random(20240229)
    for _ in range(count):
        at, bit = rng.randrange(placed[-1].end.position), 1 << rng.randrange(8)
        folder = changed(image, tmp_path / "flipped", partial(_flip, at, bit))
        hit = sum(each.end.position <= at for each in placed)
        yield folder, hit, placed[hit].start


def _flip(position: int, bit: int, raw: bytearray) -> None:
    raw[position] ^= bit


def groups_of_many_sizes() -> list[CommitGroup]:
    return [group_of(number, size=20 + number * 37 % 6000) for number in range(12)]


@pytest.mark.parametrize("sync", [True, False])
def test_flipped_byte_is_detected_or_harmless(tmp_path: Path, sync: bool) -> None:
    """Damage in a group that a later one proves synced is refused, other damage is cut off."""
    groups = groups_of_many_sizes()
    for folder, hit, start in flipped_logs(tmp_path, groups, sync=sync, count=200):
        found = recovered(folder, groups)
        if sync and hit < len(groups) - 1:
            assert isinstance(found, Refuse)
            assert (1, start) == (found.file, found.position)
        else:
            assert hit == found


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("count", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_start_on_a_log_with_a_flipped_byte(tmp_path: Path, sync: bool, count: int) -> None:
    groups = groups_of_many_sizes()
    for folder, hit, start in flipped_logs(tmp_path, groups, sync=sync, count=count):
        if sync and hit < len(groups) - 1:
            with pytest.raises(LogCorrupt) as refused:
                LogRocksdbEngine(folder)
            found = (refused.value.file, refused.value.position)
            assert (str(log_file(folder)), start) == found
        else:
            assert groups[:hit] == held_groups(folder, groups)


def held_groups(folder: Path, groups: list[CommitGroup]) -> list[CommitGroup]:
    """Return the beginning of `groups` that a start finds; every byte is compared."""
    engine = LogRocksdbEngine(folder)
    count = engine.last_entry(7) + 1
    expected = [group.entries[0][2] for group in groups[:count]]
    assert expected == (engine.read(7, 0, count - 1, 1 << 30) if count else [])
    assert (b"%d" % count if count else None) == engine.get(b"count")
    engine.close()
    return groups[:count]


def test_flipped_byte_below_the_watermark_is_never_delivered(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path / "live")
    placed = all_groups(engine, *map(group_of, range(12)), sync=True)
    engine.close()
    rng = random.Random(7)
    for _ in range(15):
        at = rng.randrange(placed[-1].end.position)
        folder = changed(tmp_path / "live", tmp_path / "flipped", partial(_flip, at, 0x40))
        engine = LogRocksdbEngine(folder)
        for number in range(12):
            try:
                assert [payload(number)] == engine.read(7, number, number, 100)
            except EntryCorrupt:
                assert placed[number].start <= at < placed[number].end.position
        engine.close()


@pytest.mark.parametrize("damaged", [each for each in product((0, 1), repeat=5) if any(each)])
@pytest.mark.parametrize("how", ["flipped", "zeroed"])
def test_any_subset_of_unsynced_groups_is_damaged_and_the_beginning_survives(
    tmp_path: Path, damaged: tuple[int, ...], how: str
) -> None:
    """A power cut may lose any blocks of what no sync covered, in any order."""
    engine = LogRocksdbEngine(tmp_path / "live", durability="os")
    store(engine, *map(group_of, range(3)), sync=True)
    placed = all_groups(engine, *map(group_of, range(3, 8)), sync=False)
    image = image_of(engine, tmp_path / "image")

    def damage(raw: bytearray) -> None:
        for hit, each in zip(damaged, placed, strict=True):
            if hit and how == "zeroed":
                raw[each.start : each.end.position] = bytes(each.end.position - each.start)
            elif hit:
                raw[(each.start + each.end.position) // 2] ^= 4

    folder = changed(image, tmp_path / "damaged", damage)
    whole = 3 + damaged.index(1)
    assert whole == recovered(folder, [*map(group_of, range(8))])
    assert whole == reopened_count(folder)


def test_damage_in_a_synced_group_refuses_though_unsynced_ones_follow(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path / "live", durability="os")
    placed = all_groups(engine, group_of(0), group_of(1), sync=True)
    store(engine, group_of(2), group_of(3), sync=False)
    image = image_of(engine, tmp_path / "image")
    folder = changed(image, tmp_path / "flipped", partial(_flip, placed[0].start + 50, 1))
    before = log_file(folder).read_bytes()
    with pytest.raises(LogCorrupt, match="group 1 was durable when group"):
        LogRocksdbEngine(folder)
    assert before == log_file(folder).read_bytes()


def test_lost_file_of_unsynced_groups_ends_the_log_before_it(tmp_path: Path) -> None:
    """The names of two new files were not durable; the power cut removed the first one."""
    engine = LogRocksdbEngine(tmp_path / "live", durability="os", file_bytes_max=500)
    placed = all_groups(engine, *map(group_of, range(12)), sync=False)
    image = image_of(engine, tmp_path / "image")
    log_file(image, 2).unlink()
    expected = sum(each.end.file == 1 for each in placed)
    assert expected == reopened_count(image)
    assert [log_file(image, 1)] == sorted((image / "log").iterdir())


def test_missing_index_is_rebuilt_from_a_whole_log(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path, file_bytes_max=500)
    store(engine, *map(group_of, range(12)))
    engine.close()
    shutil.rmtree(tmp_path / "index")
    assert 12 == reopened_count(tmp_path)


def test_image_of_a_power_cut_ends_with_the_last_sync(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path / "live", file_bytes_max=500)
    store(engine, *map(group_of, range(4)), sync=True)
    store(engine, *map(group_of, range(4, 12)), sync=False)
    crash_image.copy_after_power_cut(engine, tmp_path / "image")
    engine.close()
    assert 4 == reopened_count(tmp_path / "image")
    assert 12 == reopened_count(tmp_path / "live")


def test_groups_in_a_row_leave_no_gap(tmp_path: Path) -> None:
    engine = LogRocksdbEngine(tmp_path)
    placed: list[PlacedGroup] = all_groups(engine, *map(group_of, range(5)), sync=True)
    assert all(left.end.position == right.start for left, right in pairwise(placed))
    engine.close()
