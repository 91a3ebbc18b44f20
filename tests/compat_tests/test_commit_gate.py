"""A gate keeps a program before its commit, and knows who stands there."""

import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from compat_tests.commit_gate import ASKING, CommitGate, GatedProgram

HANG_S = 120


@pytest.fixture
def gate() -> Iterator[CommitGate]:
    with CommitGate() as gate:
        yield gate


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def ask(gate: CommitGate, pool: ThreadPoolExecutor) -> Future[None]:
    return pool.submit(GatedProgram(gate.address).ask_leave)


def test_open_gate_lets_pass(gate: CommitGate) -> None:
    program = GatedProgram(gate.address)
    program.ask_leave()
    program.ask_leave()


def test_closed_gate_keeps_a_program_until_it_opens(
    gate: CommitGate, pool: ThreadPoolExecutor
) -> None:
    with gate.closed():
        asking = ask(gate, pool)
        gate.wait_reached(HANG_S)
        assert not asking.done()
    asking.result(HANG_S)


def test_closed_gate_that_is_never_reached_is_an_error(gate: CommitGate) -> None:
    with gate.closed(), pytest.raises(AssertionError, match="no transaction came"):
        gate.wait_reached(0)


def test_program_that_was_let_pass_is_not_counted_again(
    gate: CommitGate, pool: ThreadPoolExecutor
) -> None:
    """Its thread may wake up late only: the gate waits for that before it closes again."""
    with gate.closed():
        asking = ask(gate, pool)
        gate.wait_reached(HANG_S)
    with gate.closed(), pytest.raises(AssertionError, match="no transaction came"):
        gate.wait_reached(0)
    asking.result(HANG_S)


def test_program_that_ended_at_the_gate_leaves_it_usable(gate: CommitGate) -> None:
    """Killed by the test, as programs are; the next one is let pass like any other."""
    host, port = gate.address.split(":")
    with gate.closed(), socket.create_connection((host, int(port))) as ended:
        ended.sendall(ASKING)
        gate.wait_reached(HANG_S)
    GatedProgram(gate.address).ask_leave()


def test_program_fails_when_the_test_has_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        program = GatedProgram(f"127.0.0.1:{listener.getsockname()[1]}")
        listener.accept()[0].close()
        with pytest.raises(ConnectionError):
            program.ask_leave()
