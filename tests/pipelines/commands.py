"""The command `python -m pipelines`, run again and again on one checkpoint, and killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compat_tests.deadlines import PROGRAM_S, wait_until
from compat_tests.servers.process import die_with_parent

# More of them than there are kills, so that every kill meets one.
SMALL_BATCHES = ("--every", "0.001", "--max-offsets-per-trigger", "500")


class PipelineCommand:
    """A pipeline with its flags; drivers are processes of their own."""

    def __init__(self, folder: Path, name: str, *flags: str) -> None:
        self.checkpoint, self._log = folder / "checkpoint", folder / "driver.log"
        self._command = [sys.executable, "-m", "pipelines", name, *flags, "--json"]

    @contextmanager
    def running(self, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start the driver with its JVM in a group of its own, and kill that group at the end."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [*self._command, *flags],
                stdout=subprocess.PIPE,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, takes no lock
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def finish(self, *flags: str) -> dict[str, Any]:
        """Run to the end and return the summary."""
        with self.running(*flags) as process:
            printed, _ = process.communicate(timeout=PROGRAM_S)
            assert process.returncode == 0, self._log.read_text(errors="replace")[-3000:]
        summary: dict[str, Any] = json.loads(printed.decode().splitlines()[-1])
        return summary

    def planned(self) -> set[str]:
        """The micro-batches that were begun."""
        return names(self.checkpoint / "offsets")

    def committed(self) -> set[str]:
        """The micro-batches that are done."""
        return names(self.checkpoint / "commits")


def names(folder: Path) -> set[str]:
    """The numbers of micro-batches in a folder of a checkpoint."""
    return {path.name for path in folder.glob("*") if path.name.isdigit()}


def wait_for_more(look: Callable[[], set[str]], process: subprocess.Popen[bytes]) -> None:
    """Wait until a set has new members, or the driver ended."""
    before = look()
    wait_until(
        lambda: bool(look() - before) or process.poll() is not None,
        "another batch",
        within_s=PROGRAM_S,
    )
