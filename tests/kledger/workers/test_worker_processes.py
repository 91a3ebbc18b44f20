"""The parent with processes that stand for workers: started, started again, ended."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kledger.runtime.clock import SystemClock
from kledger.runtime.tasks import Supervisor
from kledger.workers.worker_processes import WorkerCommand, WorkerProcesses
from kledger.workers.workers_state import FAILED, FAILED_STARTS_MAX, MISTAKE

STOP = signal.SIGUSR1
READY = "import sys, os\nprint('kledger ready kafka=h:1', flush=True)\n"
SERVING = READY + "sys.stdin.read()"
"""It ends when its parent does, or by a signal."""


def command(program: str, content: bytes = b"") -> WorkerCommand:
    return WorkerCommand(
        words=[sys.executable, "-I", "-S", "-c", program], content=content, environment={}
    )


class LoggedLines(logging.Handler):
    """The lines that the parent logs, and a way to wait for them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._logged = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self._logged.set()

    def count(self, text: str) -> int:
        return sum(text in each for each in self.lines)

    async def wait(self, text: str, count: int = 1) -> None:
        while self.count(text) < count:
            self._logged.clear()
            await self._logged.wait()


@pytest.fixture
def logged() -> Iterator[LoggedLines]:
    handler = LoggedLines()
    logger = logging.getLogger("kledger.workers.worker_processes")
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


class Parent:
    """A running parent."""

    def __init__(self, commands: Sequence[WorkerCommand]) -> None:
        self.ready = asyncio.Event()
        self.processes = WorkerProcesses(commands, on_ready=self.ready.set, clock=SystemClock())
        self._supervisor = Supervisor()
        self.code = self._supervisor.spawn(self.processes.run([STOP]), "parent")

    async def stop(self) -> int:
        os.kill(os.getpid(), STOP)
        return await self.code


def is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


async def test_all_are_ready_and_a_signal_ends_all(logged: LoggedLines) -> None:
    parent = Parent([command(SERVING)] * 3)
    await parent.ready.wait()
    ids = parent.processes.process_ids
    assert [0, 1, 2] == sorted(ids)
    assert 1 == logged.count(f"worker 2 is ready: kafka=h:1, process {ids[2]}")
    assert 0 == await parent.stop()
    assert not any(map(is_running, ids.values()))


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, FAILED)])
async def test_exit_code_is_that_of_the_orderly_end(
    logged: LoggedLines, code: int, expected: int
) -> None:
    ending = f"import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os._exit({code}))\n"
    parent = Parent([command(ending + SERVING), command(SERVING)])
    await parent.ready.wait()
    assert expected == await parent.stop()
    assert 1 == logged.count("stopping: SIGUSR1")


async def test_killed_worker_is_started_again_and_the_others_run_on(logged: LoggedLines) -> None:
    parent = Parent([command(SERVING)] * 2)
    await parent.ready.wait()
    first, second = parent.processes.process_ids.values()
    parent.ready.clear()
    os.kill(second, signal.SIGKILL)
    await logged.wait("worker 1 is ready", 2)
    assert 1 == logged.count(f"worker 1, process {second}: signal 9")
    assert first == parent.processes.process_ids[0]
    assert second != parent.processes.process_ids[1]
    assert not parent.ready.is_set(), "it is announced once"
    await parent.stop()


async def test_worker_gets_its_content_and_an_open_pipe() -> None:
    program = "import sys\nassert sys.stdin.buffer.read(1_000_000) == b'a' * 1_000_000\n" + SERVING
    parent = Parent([command(program, b"a" * 1_000_000)])
    await parent.ready.wait()
    await parent.stop()


async def test_worker_that_never_starts_ends_all(
    logged: LoggedLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kledger.workers.workers_state.RESTART_DELAY_MAX_MS", 1)
    dying = command("import os\nos.kill(os.getpid(), 9)", b"a" * 1_000_000)
    parent = Parent([command(SERVING), dying])
    assert FAILED == await parent.code
    assert FAILED_STARTS_MAX + 1 == logged.count("worker 1, process")
    assert not parent.ready.is_set()


async def test_program_that_cannot_be_started_ends_all(
    logged: LoggedLines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kledger.workers.workers_state.RESTART_DELAY_MAX_MS", 1)
    nothing = WorkerCommand(words=[str(tmp_path / "nothing")], content=b"", environment={})
    parent = Parent([nothing, command(SERVING)])
    assert FAILED == await parent.code
    assert FAILED_STARTS_MAX + 1 == logged.count("worker 0: no process can be started: ")


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import sys\nsys.exit(1)", FAILED),
        (READY + "sys.exit(1)", FAILED),
        ("import sys\nsys.exit(2)", MISTAKE),
    ],
)
async def test_worker_that_cannot_go_on_ends_all(program: str, expected: int) -> None:
    parent = Parent([command(SERVING), command(program)])
    assert expected == await parent.code
    assert {} == parent.processes.process_ids


async def test_second_signal_kills_a_worker_that_does_not_end(logged: LoggedLines) -> None:
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVING
    parent = Parent([command(deaf)])
    await parent.ready.wait()
    os.kill(os.getpid(), STOP)
    await logged.wait("stopping: ")
    assert FAILED == await parent.stop()
    assert 1 == logged.count("stopping at once: ")
    assert 1 == logged.count("signal 9")


async def test_output_that_is_no_ready_line_is_read_away(logged: LoggedLines) -> None:
    """A worker that prints without an end must neither fill the parent nor wait for it."""
    chatty = "import os\nfor _ in range(100): os.write(1, b'x' * 65536)\n"
    parent = Parent([command(chatty + "os.kill(os.getpid(), 9)"), command(SERVING)])
    await logged.wait("worker 0, process")
    assert 0 == logged.count("worker 0 is ready")
    await parent.stop()


async def test_fault_of_the_parent_ends_all(
    logged: LoggedLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: object, index: int) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("kledger.workers.workers_state.WorkersState.ready", broken)
    parent = Parent([command(SERVING)] * 2)
    assert FAILED == await parent.code
    assert {} == parent.processes.process_ids
