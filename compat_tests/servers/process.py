"""One server under test as a process of its own: start, measure, stop, kill.

Rule: a process started here ends with its owner: on stop(), on leaving the context, and when the
owner itself is killed (the kernel is asked to send the signal).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, Self

from compat_tests.deadlines import PROGRAM_S, WAIT_S
from compat_tests.servers import metadata_probe
from compat_tests.servers.ports import ReservedPort, reserve_run

_LOG_TAIL_BYTES = 2000
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_CPUCLOCK_SCHED = 2
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ServerFailed(RuntimeError):
    """The server did not start, or ended by itself; the message carries the end of its log."""


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it ends (run in the child)."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def cpu_seconds_of(process_id: int) -> float:
    """Give the CPU time of all threads of a process so far, ended ones too, user and kernel."""
    # The clock of another process, as clock_getcpuclockid(3) makes it: /proc has only ticks.
    return time.clock_gettime((~process_id << 3) | _CPUCLOCK_SCHED)


def rss_bytes_of(process_id: int) -> int:
    """Give the resident memory of a process."""
    return int(Path(f"/proc/{process_id}/statm").read_text().split()[1]) * _PAGE_BYTES


class ServerProcess(ABC):
    """What kledger and the reference have in common; a subclass says how its process begins.

    A server keeps its port over stop() and start(), so that clients find it again, and no other
    process gets it in between.
    """

    name = "server"

    def __init__(self, folder: Path) -> None:
        """Keep data and log of the server inside `folder`, which is made on start."""
        self.folder = folder
        self.host = "127.0.0.1"
        self.port = 0
        self.start_timeout_s: float = PROGRAM_S
        self.stop_timeout_s: float = WAIT_S
        self._process: subprocess.Popen[bytes] | None = None
        self._reserved: list[ReservedPort] = []

    @property
    def bootstrap(self) -> str:
        """The address clients are given."""
        return f"{self.host}:{self.port}"

    @property
    def broker_addresses(self) -> list[str]:
        """The addresses that metadata names, by broker id."""
        return [self.bootstrap]

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None, f"{self.name} is not started"
        return self._process.pid

    @property
    def data_folder(self) -> Path:
        """Where the server keeps its records."""
        return self.folder / "data"

    @property
    def log_file(self) -> Path:
        """What the server wrote to standard error."""
        return self.folder / "server.log"

    @abstractmethod
    def command(self) -> list[str]:
        """Give the command line of the process."""

    def prepare(self) -> None:
        """Do what must be done before the process begins; is not part of the time of start()."""
        self.data_folder.mkdir(parents=True, exist_ok=True)

    def reserve_port(self, following: int = 0) -> int:
        """Give a port that is this server's until the context is left, and so many behind it."""
        taken = reserve_run(self.host, 1 + following)
        self._reserved += taken
        return taken[0].number

    @abstractmethod
    def wait_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        """Wait until the process says, in its own way, which port it listens on."""

    def start(self) -> float:
        """Start the process and wait for its first answer to a Metadata request.

        Returns:
            Seconds from the start of the process to that answer.

        Raises:
            ServerFailed: no answer in time, or the process ended.
        """
        self.prepare()
        begun = time.monotonic()
        self.begin()
        self.wait_until_answering(begun + self.start_timeout_s)
        return time.monotonic() - begun

    def begin(self) -> None:
        """Start the process, which is prepared; `wait_until_answering` comes next."""
        assert self._process is None, f"{self.name} runs already"
        with self.log_file.open("ab") as log:
            self._process = self._spawn(log)

    def wait_until_answering(self, deadline: float) -> None:
        """Wait for the first answer to a Metadata request; without one it is killed.

        Raises:
            ServerFailed: no answer in time, or the process ended.
        """
        assert self._process is not None, f"{self.name} is not started"
        is_answering = False
        try:
            self.wait_ready(self._process, deadline)
            is_answering = metadata_probe.wait_until_answered(
                self.host, self.port, deadline=deadline, is_worth_it=self.is_running
            )
        finally:
            if not is_answering:
                self.kill()
        if not is_answering:
            raise ServerFailed(f"{self.name}: ended, or no answer in time\n{self.log_tail()}")

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Begin the process; its standard output is a pipe, its standard error the log."""
        return subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, takes no lock
            start_new_session=True,
        )

    def stop(self) -> int:
        """End the process in the orderly way and give its exit status; killed when it will not."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """End the process as a crash would."""
        return self._end(signal.SIGKILL)

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            return process.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def require_running(self) -> None:
        """Check that the process lives.

        Raises:
            ServerFailed: the process ended without stop().
        """
        assert self._process is not None, f"{self.name} is not started"
        status = self._process.poll()
        if status is not None:
            raise ServerFailed(f"{self.name}: ended with status {status}\n{self.log_tail()}")

    def is_running(self) -> bool:
        """True while the process lives."""
        return self._process is not None and self._process.poll() is None

    def cpu_seconds(self) -> float:
        """Give the CPU time of all threads so far, ended ones too, user and kernel."""
        return cpu_seconds_of(self.pid)

    def rss_bytes(self) -> int:
        """Give the resident memory."""
        return rss_bytes_of(self.pid)

    def log_tail(self) -> str:
        """Give the end of the log, for messages."""
        if not self.log_file.exists():
            return ""
        return self.log_file.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop, whatever happened, and let the ports go."""
        self.stop()
        while self._reserved:
            self._reserved.pop().close()
