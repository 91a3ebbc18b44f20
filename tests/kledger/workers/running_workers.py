"""A parent with real workers, as a user starts it."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from threading import Timer
from types import TracebackType
from typing import Self

from compat_tests.servers.ports import ReservedPort

GUARD_SECONDS = 120.0
"""Against waiting for ever; nothing here takes as long."""


class RunningWorkers:
    """`kledger serve --workers 2`; a context manager.

    Attributes:
        lines: what it has logged, as far as it was read.
        ready: the addresses of its ready line, by name.
    """

    def __init__(self, *arguments: str, kafka: str = "127.0.0.1:0") -> None:
        self._command = [
            sys.executable, "-P", "-m", "kledger", "serve", "--workers", "2", "--kafka", kafka,
            *arguments,
        ]  # fmt: skip
        self.lines: list[str] = []
        self.ready: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        # Every wait here is a read, which ends with the process.
        self._guard = Timer(GUARD_SECONDS, self.process.kill)
        self._guard.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("kledger ready "):
            self._end()
            raise AssertionError(f"not ready: {line}{''.join(self.lines)}")
        self.ready = dict(part.split("=", 1) for part in line.split()[2:])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def wait_logged(self, pattern: str) -> re.Match[str]:
        """Read the log up to a line that has the pattern, from the last line that was read."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if (found := re.search(pattern, line)) is not None:
                return found
        raise AssertionError(f"no {pattern} in {''.join(self.lines)}")

    def wait_worker(self, index: int) -> tuple[dict[str, str], int]:
        """Return the addresses and the process id of a worker that becomes ready now."""
        found = self.wait_logged(rf"worker {index} is ready: (.*), process (\d+)$")
        return dict(part.split("=", 1) for part in found[1].split()), int(found[2])

    def wait_next_worker(self) -> tuple[int, int]:
        """Return the index and the process id of the next worker that becomes ready."""
        found = self.wait_logged(r"worker (\d+) is ready: .*, process (\d+)$")
        return int(found[1]), int(found[2])

    def stop(self) -> int:
        """End it in order; return its exit code."""
        self.process.terminate()
        return self.wait_ended()

    def wait_ended(self) -> int:
        """Read the log to its end, which is that of the last worker; return the exit code."""
        assert self.process.stderr is not None
        self.lines += self.process.stderr
        return self.process.wait()

    def _end(self) -> None:
        # At the end of the parent its workers end, too, and with the last one the pipe.
        self.process.kill()
        self.wait_ended()
        self._guard.cancel()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()


def fixed_ports(count: int) -> int:
    """Return the first of so many free ports that the kernel gives to nobody who does not name one.

    For a server that is started again on its ports: others may take a port of the kernel's choice
    while it is away.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        low, high = map(int, file.read().split())
    firsts: list[int] = [*range(high + 1, 65_536 - count), *range(20_000, low - count)]
    begin = os.getpid() * 16 % len(firsts)  # test processes that run at once begin apart
    for first in firsts[begin:] + firsts[:begin]:
        with ExitStack() as taken:
            try:
                for number in range(first, first + count):
                    taken.enter_context(ReservedPort("127.0.0.1", number))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")


def command_line(process_id: int) -> Sequence[str]:
    """Return what `ps` shows of a process."""
    with open(f"/proc/{process_id}/cmdline", encoding="utf-8") as file:
        return file.read().split("\0")[:-1]
