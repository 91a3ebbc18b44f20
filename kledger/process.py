"""A server in a child process, for tests, demos and benchmarks.

Rule: the context manager ends the process in every case; a server that does not become ready is an
error with its log. Blocking calls only.
Must not know: what the server does.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

STOP_SECONDS = 60.0
LOG_BYTES_MAX = 1 << 20


class ServerNotReady(RuntimeError):
    """The process ended before its ready line; the message holds its standard error."""


class ServerProcess:
    """`python -P -m kledger serve ...`; a context manager."""

    def __init__(
        self, *arguments: str, kafka: str = "127.0.0.1:0", native: str | None = None
    ) -> None:
        """Args: arguments: further arguments of `kledger serve`, such as `--memory`."""
        self._command = [sys.executable, "-P", "-m", "kledger", "serve", "--kafka", kafka]
        if native is not None:
            self._command += ["--native", native]
        self._command += arguments
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None
        self.kafka_address = ""
        self.native_address = ""
        self.admin_address = ""

    def start(self) -> Self:
        """Start and wait for the ready line.

        Raises:
            ServerNotReady: the process ended before.
        """
        return self.begin().wait_until_ready()

    def begin(self) -> Self:
        """Start the process."""
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=server_environment(),
        )
        return self

    def wait_until_ready(self) -> Self:
        """Wait for the ready line, as a standby of a cluster until it is the owner.

        Raises:
            ServerNotReady: the process ended before.
        """
        line = self._line()
        while line.startswith("kledger standby "):
            line = self._line()
        if not line.startswith("kledger ready "):
            self.stop()
            raise ServerNotReady(f"{' '.join(self._command)}: {line}{self.log_text()}")
        listeners = dict(part.split("=", 1) for part in line.split()[2:])
        self.kafka_address = listeners["kafka"]
        self.native_address = listeners["native"].removeprefix("-")
        self.admin_address = listeners["admin"].removeprefix("-")
        return self

    def wait_until_standby(self) -> Self:
        """Wait for the line of a standby.

        Raises:
            ServerNotReady: there was another one, or none.
        """
        line = self._line()
        if not line.startswith("kledger standby "):
            self.stop()
            raise ServerNotReady(f"{' '.join(self._command)}: {line}{self.log_text()}")
        return self

    def _line(self) -> str:
        assert self._process is not None, "not started"
        assert self._process.stdout is not None, "without a pipe"
        return self._process.stdout.readline()

    @property
    def pid(self) -> int:
        """The process id while it runs."""
        assert self._process is not None, "not started"
        return self._process.pid

    def log_text(self) -> str:
        """Return the server's standard error so far."""
        if self._log is None:
            return ""
        # By offset: the server writes through the same file, whose position must not move.
        return os.pread(self._log.fileno(), LOG_BYTES_MAX, 0).decode(errors="replace")

    def stop(self) -> int:
        """Stop the server in order, kill it after STOP_SECONDS; return its exit code."""
        if self._process is None:
            return 0
        process = self._process
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        return process.returncode

    def wait(self, timeout_seconds: float = STOP_SECONDS) -> int:
        """Wait until the server ends without a signal; return its exit code."""
        assert self._process is not None, "not started"
        return self._process.wait(timeout_seconds)

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        assert self._process is not None, "not started"
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        if self._log is not None:
            self._log.close()
            self._log = None


def server_environment() -> dict[str, str]:
    """Return a server's variables: this kledger comes before the folders of PYTHONPATH."""
    environment = dict(os.environ)
    if "PYTHONPATH" in environment:
        home = str(Path(__file__).parent.parent)
        environment["PYTHONPATH"] = os.pathsep.join([home, environment["PYTHONPATH"]])
    return environment


def arguments_for(settings: dict[str, object]) -> Sequence[str]:
    """Turn settings into `--set` arguments."""
    return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
