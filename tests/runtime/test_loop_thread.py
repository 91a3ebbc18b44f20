"""An event loop in a thread of its own."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from kledger.runtime.loop_thread import LoopStopped, LoopThread

TEST_SECONDS = 60

INTERRUPTED = """
import asyncio, signal, threading
from kledger.runtime.loop_thread import LoopThread

# A background job of a shell starts with SIGINT ignored, and Python leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)
runs, ended = threading.Event(), threading.Event()

async def wait():
    runs.set()
    try:
        await asyncio.Event().wait()
    finally:
        ended.set()

def interrupt():
    runs.wait()
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

async def answer():
    return 42

thread = LoopThread("t")
thread.start()
threading.Thread(target=interrupt).start()
try:
    thread.run(wait())
except KeyboardInterrupt:
    print("interrupted", ended.wait(60), thread.run(answer()))
thread.stop()
"""


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread("test")
    thread.start()
    yield thread
    thread.stop()


async def echo(value: int) -> int:
    await asyncio.sleep(0)
    if value < 0:
        raise ValueError(value)
    return value


def test_caller_gets_what_the_coroutine_returns_or_raises(thread: LoopThread) -> None:
    assert 7 == thread.run(echo(7))
    with pytest.raises(ValueError, match="-1"):
        thread.run(echo(-1))


def test_several_coroutines_of_one_caller_run_together(thread: LoopThread) -> None:
    async def meet(mine: Future[None], other: Future[None]) -> str:
        mine.set_result(None)
        await asyncio.wrap_future(other)
        return "met"

    one: Future[None] = Future()
    another: Future[None] = Future()
    begun = thread.begin(meet(one, another)), thread.begin(meet(another, one))
    assert ["met", "met"] == [each.result(60) for each in begun]


def test_any_number_of_threads_may_run_work(thread: LoopThread) -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(thread.run(echo(n)))) for n in range(20)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(TEST_SECONDS)
    assert list(range(20)) == sorted(found)


def test_stop_raises_in_waiting_threads(thread: LoopThread) -> None:
    runs, problems = threading.Event(), list[type[BaseException]]()

    async def wait() -> None:
        runs.set()
        await asyncio.Event().wait()

    def ask() -> None:
        try:
            thread.run(wait())
        except LoopStopped as error:
            problems.append(type(error))

    asking = threading.Thread(target=ask)
    asking.start()
    assert runs.wait(TEST_SECONDS)
    thread.stop()
    asking.join(TEST_SECONDS)
    assert [LoopStopped] == problems


def test_nothing_runs_after_stop(thread: LoopThread) -> None:
    thread.stop()
    thread.stop()
    with pytest.raises(LoopStopped):
        thread.run(echo(1))


def test_one_that_was_never_started_can_be_stopped() -> None:
    LoopThread("test").stop()


def test_loop_does_not_wait_for_itself(thread: LoopThread) -> None:
    async def ask() -> None:
        thread.run(echo(1))

    with pytest.raises(RuntimeError, match="own loop"):
        thread.run(ask())


def test_interrupted_caller_cancels_what_it_waits_for_and_can_go_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        capture_output=True, text=True, timeout=TEST_SECONDS, check=True,
    )  # fmt: skip
    assert "interrupted True 42\n" == done.stdout
