"""kledger as a process: the installed command, as a user starts it."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from compat_tests.servers.process import ServerFailed, ServerProcess
from compat_tests.servers.secrets import secrets_in, shown_secrets

_READY = re.compile(rb"kledger ready kafka=([^\s:]+):(\d+)((?:,\S+)?) native=(\S+) ")


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
        self.more_addresses: list[str] = []
        """Of its listeners but the first, in the order of the setting."""

    def __exit__(self, *exception: object) -> None:
        """Stop, and search the log for secrets; they fail a test that has not failed already."""
        super().__exit__(*exception)
        shown = shown_secrets(
            self.log_file.read_text(errors="replace") if self.log_file.exists() else "",
            self.secrets | secrets_in(self.settings),
        )
        assert exception[0] is not None or not shown, f"secrets in the log: {shown}"

    @property
    def broker_addresses(self) -> list[str]:
        """Those of the workers, if it has some."""
        own = [f"{self.host}:{self.port + 1 + each}" for each in range(self.workers)]
        return own or super().broker_addresses

    def prepare(self) -> None:
        """Reserve the ports at the first start."""
        super().prepare()
        if not self.port:
            self.port = self.reserve_port(self.workers)
            if self.native_address:
                self.native_address = f"{self.host}:{self.reserve_port(self.workers)}"

    def command(self) -> list[str]:
        """Give the command line; every start has the same ports."""
        listen = f"{self.host}:{self.port}"
        place = ["--data", str(self.data_folder), "--kafka", listen]
        words = [kledger_program(), "serve", *place, "--durability", self.durability]
        if self.native_address:
            words += ["--native", self.native_address]
        if self.workers:
            words += ["--workers", str(self.workers)]
        for key, value in self.settings.items():
            words += ["--set", f"{key}={value}"]
        return words

    def kill(self) -> int:
        """End the process as a crash would, and its workers, which would stop in order."""
        if self.workers and self.is_running():
            os.kill(self.pid, signal.SIGSTOP)  # it would start them again
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
            for each in children.split():
                os.kill(int(each), signal.SIGKILL)
        return super().kill()

    def wait_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        """Read the line that says which ports it listens on."""
        assert process.stdout is not None
        waiting = max(deadline - time.monotonic(), 0)
        readable, _, _ = select.select([process.stdout], [], [], waiting)
        line = process.stdout.readline() if readable else b""
        found = _READY.match(line)
        if found is None:
            raise ServerFailed(f"kledger: expected the ready line, got {line!r}\n{self.log_tail()}")
        self.host, self.port = found[1].decode(), int(found[2])
        if self.native_address:
            self.native_address = found[4].decode()
        self.more_addresses = [each for each in found[3].decode().split(",") if each]


def kledger_program() -> str:
    """Give the command beside the running interpreter."""
    return str(Path(sys.executable).parent / "kledger")
