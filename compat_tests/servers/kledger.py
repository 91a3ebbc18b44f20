"""kledger as a process: the installed command, as a user starts it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from compat_tests.servers import metadata_probe
from compat_tests.servers.process import (
    ServerFailed,
    ServerProcess,
    cpu_seconds_of,
    rss_bytes_of,
)
from compat_tests.servers.secrets import secrets_in, shown_secrets

_WORKER = re.compile(rb"/worker-(\d+)\0")
_READY = re.compile(rb"kledger ready kafka=([^\s:]+):(\d+)(?:,\S+)? native=(\S+) ")


class KledgerServer(ServerProcess):
    """`kledger serve` on a folder, with a durability and settings.

    When its context is left, its log must not show a secret.

    Attributes:
        secrets: what the server learns beside the secrets of its settings.
    """

    name = "kledger"

    def __init__(
        self,
        folder: Path,
        *,
        durability: str = "fsync",
        settings: Mapping[str, str] | None = None,
        is_native: bool = False,
        workers: int = 0,
    ) -> None:
        """Take `settings` as they go behind --set; `is_native` listens for native clients, too.

        With `workers` the ports behind that of a listener are those of the workers.
        """
        super().__init__(folder)
        self.durability = durability
        self.settings = dict(settings or {})
        self.workers = workers
        self.native_address = f"{self.host}:0" if is_native else ""
        self.secrets: set[str] = set()

    def __exit__(self, *exception: object) -> None:
        """Stop, and search the log for secrets; they fail a test that has not failed already."""
        super().__exit__(*exception)
        shown = shown_secrets(
            self.log_file.read_text(errors="replace") if self.log_file.exists() else "",
            self.secrets | secrets_in(self.settings),
        )
        assert exception[0] is not None or not shown, f"secrets in the log: {shown}"

    @property
    def ports_behind(self) -> int:
        """How many ports behind that of each listener it uses, too."""
        return self.workers

    @property
    def parts(self) -> int:
        """How many parts of it `kill_part` can end, while others go on."""
        return self.workers

    @property
    def broker_addresses(self) -> list[str]:
        """Those of the workers, if it has some."""
        own = [f"{self.host}:{self.port + 1 + each}" for each in range(self.workers)]
        return own or super().broker_addresses

    def prepare(self) -> None:
        """Reserve the ports at the first start."""
        super().prepare()
        if not self.port:
            self.port = self.reserve_port(self.ports_behind)
            if self.native_address:
                self.native_address = f"{self.host}:{self.reserve_port(self.ports_behind)}"

    def listen_as(self, *names: str) -> dict[str, str]:
        """Have listeners with these names, in place of one without login; return their addresses.

        Call it before the first start.
        """
        self.prepare()
        first, *others = names
        addresses = {first: f"{self.host}:{self.port}"}  # the one that the start waits for
        for name in others:
            addresses[name] = f"{self.host}:{self.reserve_port(self.ports_behind)}"
        self.settings["listeners"] = ",".join(
            f"{name}://{address}" for name, address in addresses.items()
        )
        return addresses

    def command(self) -> list[str]:
        """Give the command line; every start has the same ports."""
        listen = ["--kafka", f"{self.host}:{self.port}"]
        words = [kledger_program(), "serve", *self.storage(), *listen]
        if self.native_address:
            words += ["--native", self.native_address]
        if self.workers:
            words += ["--workers", str(self.workers)]
        for key, value in self.settings.items():
            words += ["--set", f"{key}={value}"]
        return words

    def storage(self) -> list[str]:
        """Give the words of the command line that say where it keeps its data."""
        return ["--data", str(self.data_folder), "--durability", self.durability]

    def cpu_seconds(self) -> float:
        """Give the CPU time of the process so far, and that of its workers that run now."""
        return super().cpu_seconds() + sum(map(cpu_seconds_of, self.worker_ids().values()))

    def rss_bytes(self) -> int:
        """Give the resident memory of the process and its workers."""
        return super().rss_bytes() + sum(map(rss_bytes_of, self.worker_ids().values()))

    def kill(self) -> int:
        """End the process as a crash would, and its workers, which would stop in order."""
        if self.workers and self.is_running():
            os.kill(self.pid, signal.SIGSTOP)  # it would start them again
            for each in self.worker_ids().values():
                os.kill(each, signal.SIGKILL)
        return super().kill()

    def kill_part(self, index: int) -> float:
        """End one worker as a crash would; its parent starts it again.

        Returns:
            Seconds from its end to the first answer of its successor to a Metadata request.

        Raises:
            ServerFailed: no answer in time, or the parent has ended.
        """
        process_id = self.worker_ids()[index]
        ended = os.pidfd_open(process_id)
        try:
            os.kill(process_id, signal.SIGKILL)
            select.select([ended], [], [])
        finally:
            os.close(ended)
        begun = time.monotonic()
        is_answering = metadata_probe.wait_until_answered(
            self.host,
            self.port + 1 + index,
            deadline=begun + self.start_timeout_s,
            is_worth_it=self.is_running,
        )
        if not is_answering:
            raise ServerFailed(f"worker {index}: no answer in time\n{self.log_tail()}")
        return time.monotonic() - begun

    def worker_ids(self) -> dict[int, int]:
        """Give the process ids of the workers that run now, by their numbers."""
        if not self.workers:
            return {}
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        found = {}
        for each in map(int, children):
            with contextlib.suppress(FileNotFoundError):
                words = Path(f"/proc/{each}/cmdline").read_bytes()
                if (match := _WORKER.search(words)) is not None:
                    found[int(match[1])] = each
        return found

    def wait_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        """Read the line that says which ports it listens on; a standby has another one before."""
        assert process.stdout is not None
        line = _line_of(process.stdout.fileno(), deadline)
        while line.startswith(b"kledger standby "):
            line = _line_of(process.stdout.fileno(), deadline)
        found = _READY.match(line)
        if found is None:
            raise ServerFailed(f"kledger: expected the ready line, got {line!r}\n{self.log_tail()}")
        self.host, self.port = found[1].decode(), int(found[2])
        if self.native_address:
            self.native_address = found[3].decode()


def _line_of(descriptor: int, deadline: float) -> bytes:
    """Read a line, or what there is of it at the deadline, or at the end."""
    line = b""
    while not line.endswith(b"\n"):
        waiting = max(deadline - time.monotonic(), 0)
        readable, _, _ = select.select([descriptor], [], [], waiting)
        # One at a time: what a buffer holds, select does not see.
        if not readable or not (found := os.read(descriptor, 1)):
            break
        line += found
    return line


def kledger_program() -> str:
    """Give the command beside the running interpreter."""
    return str(Path(sys.executable).parent / "kledger")
