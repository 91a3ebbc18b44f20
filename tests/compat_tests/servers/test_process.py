"""A server process is measured while it lives and ends with its owner."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.servers.process import ServerFailed, ServerProcess

ANSWERING = """
import socket, struct
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    connection.recv(1000)
    connection.sendall(struct.pack(">iii", 8, 1, 1))
"""


PORTS_TRIED_MAX = 20


class Answering(ServerProcess):
    """A stand-in that answers the probe and nothing else."""

    program = ANSWERING

    def command(self) -> list[str]:
        return [sys.executable, "-S", "-c", self.program]

    def wait_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        assert process.stdout is not None
        self.port = int(process.stdout.readline() or b"0")


class Failing(Answering):
    """A stand-in that ends at once."""

    program = "import sys; sys.exit('no such setting')"

    def wait_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        process.wait()
        raise ServerFailed(self.log_tail())


class Ending(Answering):
    """A stand-in that ends before it has answered."""

    program = "print(1, flush=True)"


def test_running_server_is_measured_and_stopped(tmp_path: Path) -> None:
    with Answering(tmp_path) as server:
        pid = server.pid
        assert server.is_running()
        assert server.bootstrap == f"127.0.0.1:{server.port}"
        assert 0 < server.cpu_seconds() < 10
        assert server.rss_bytes() > 1 << 20
    assert not server.is_running()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_killed_server_can_be_started_again(tmp_path: Path) -> None:
    server = Answering(tmp_path)
    server.start()
    assert server.kill() == -9
    server.start()
    assert server.is_running()
    server.stop()


def test_error_of_a_server_that_does_not_start_has_its_log(tmp_path: Path) -> None:
    server = Failing(tmp_path)
    with pytest.raises(ServerFailed, match="no such setting"):
        server.start()
    assert not server.is_running()


def test_server_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    server = Ending(tmp_path)
    with pytest.raises(ServerFailed, match="ended"):
        server.start()
    assert not server.is_running()


def test_status_of_a_server_that_ended_is_returned(tmp_path: Path) -> None:
    with Answering(tmp_path) as server:
        server.require_running()
        os.kill(server.pid, signal.SIGKILL)
        os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ServerFailed, match="server: ended with status -9"):
            server.require_running()


def test_port_is_reserved_until_the_context_is_left(tmp_path: Path) -> None:
    for _ in range(PORTS_TRIED_MAX):
        with Answering(tmp_path) as server:
            address = "127.0.0.1", server.reserve_port()
            with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
                stranger.bind(address)
        if is_free(address):
            return
    pytest.fail(f"none of {PORTS_TRIED_MAX} ports was free after it was left")


def is_free(address: tuple[str, int]) -> bool:
    """Whether nobody has a port; another process may have taken it in this moment."""
    with socket.socket() as stranger:
        try:
            stranger.bind(address)
        except OSError:
            return False
        return True
