"""One parent at a time has a folder, and its record is there before anything else."""

import fcntl
import os
from pathlib import Path

import pytest

from kledger.runtime.manual_clock import ManualClock
from kledger.runtime.tasks import Supervisor
from kledger.workers.worker_plan import WorkersMistake
from kledger.workers.workers_folder import ORPHANS_MAX_MS, WorkersFolder, wait_for_orphans
from tests.gateway.running import until

RECORD = '{"format": 1, "made_with": 2, "workers": 2, "node_id": 1}\n'


def opened(path: Path, count: int = 2) -> WorkersFolder:
    return WorkersFolder(str(path), count=count, node_id=1)


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir())


def test_new_folder_gets_its_record(tmp_path: Path) -> None:
    folder = tmp_path / "above" / "data"
    opened(folder).close()
    assert ["lock", "workers.json"] == names(folder)
    assert RECORD == (folder / "workers.json").read_text()


def test_record_keeps_what_the_folder_was_made_with(tmp_path: Path) -> None:
    opened(tmp_path).close()
    grown = opened(tmp_path, 3)
    assert (2, 3) == (grown.record.made_with, grown.record.workers)
    grown.close()
    with pytest.raises(WorkersMistake, match="expected at least 3"):
        opened(tmp_path)


def test_second_parent_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(WorkersMistake, match=f"data folder {tmp_path} is in use"):
        opened(tmp_path, 3)
    assert RECORD == (tmp_path / "workers.json").read_text()
    first.close()
    opened(tmp_path).close()


def test_lock_is_that_of_a_data_folder(tmp_path: Path) -> None:
    """A server without workers that starts in the same empty folder has locked it."""
    with (tmp_path / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(WorkersMistake, match="in use"):
            opened(tmp_path)
    assert ["lock"] == names(tmp_path)


def test_refused_folder_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(WorkersMistake, match=r"something else, such as notes\.txt"):
        opened(tmp_path)
    assert ["notes.txt"] == names(tmp_path)


def test_damaged_record_is_a_mistake_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "workers.json").write_text("{")
    with pytest.raises(WorkersMistake, match=f"{tmp_path}/workers.json cannot be read: "):
        opened(tmp_path)


def test_record_is_synced_before_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut there is the whole record or none, and no worker that it does not name."""
    synced = []
    monkeypatch.setattr(
        "os.fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    )
    opened(tmp_path / "data").close()
    new = str(tmp_path / "data" / ".workers.json.new")
    assert [new, str(tmp_path / "data"), str(tmp_path)] == synced


async def test_parent_waits_for_workers_that_have_none(tmp_path: Path) -> None:
    (tmp_path / "worker-1").mkdir()
    clock, supervisor = ManualClock(), Supervisor()
    with (tmp_path / "worker-1" / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = supervisor.spawn(wait_for_orphans(str(tmp_path), clock), "waiting")
        for _ in range(10):
            await until(lambda: clock.sleeper_count == 1)
            clock.advance(1_000)
        await until(lambda: clock.sleeper_count == 1)
    clock.advance(1_000)
    await waiting
    await supervisor.close()


async def test_parent_does_not_wait_for_ever(tmp_path: Path) -> None:
    """Another program may have the folder of a worker; starting that worker says so."""
    (tmp_path / "worker-0").mkdir()
    clock, supervisor = ManualClock(), Supervisor()
    with (tmp_path / "worker-0" / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = supervisor.spawn(wait_for_orphans(str(tmp_path), clock), "waiting")
        await until(lambda: clock.sleeper_count == 1)
        clock.advance(ORPHANS_MAX_MS)
        await waiting
    await supervisor.close()


async def test_parent_does_not_wait_for_workers_that_have_one(tmp_path: Path) -> None:
    first = opened(tmp_path)
    (tmp_path / "worker-0").mkdir()
    with (tmp_path / "worker-0" / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        await wait_for_orphans(str(tmp_path), ManualClock())
    first.close()


async def test_folder_without_workers_is_not_waited_for(tmp_path: Path) -> None:
    await wait_for_orphans(str(tmp_path / "nothing"), ManualClock())
    assert [] == names(tmp_path)
