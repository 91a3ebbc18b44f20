"""What a worker reads from its parent, and how it sees the parent's end."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from kledger.settings import Settings, load
from kledger.workers.worker_identity import WorkerIdentity
from kledger.workers.worker_start import NoWorkerStart, WorkerStart, changed, watch_parent

IDENTITY = WorkerIdentity(
    index=1, count=2, made_with=2, folder="d", bootstrap={"kafka": ("127.0.0.1", 9092)}
)


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    """The descriptors of both ends; an end that a test closes is taken out."""
    ends = list(os.pipe())
    yield ends
    for each in ends:
        os.close(each)


def test_settings_arrive_as_the_parent_has_read_them(pipe: list[int]) -> None:
    """All kinds of values, and secrets that no representation shows."""
    settings = load(
        assignments=[
            "num.partitions=3",
            "log.retention.ms=1000",
            "native.function_modules=a,b",
            "offload.options.region=eu",
            "ssl.key.password=secret",
            "listener.name.plaintext.ssl.key.password=secret",
        ]
    )
    os.write(pipe[1], WorkerStart(identity=IDENTITY, settings=settings).encode())
    found = WorkerStart.read(pipe[0])
    assert WorkerStart(identity=IDENTITY, settings=settings) == found
    assert type(settings.kafka.ssl_key_password) is type(found.settings.kafka.ssl_key_password)
    assert "secret" not in repr(found)


def test_changes_are_named_by_section() -> None:
    found = changed(Settings(), {"server.kafka": "h:1", "server.native": "h:2", "kafka.node_id": 7})
    assert ("h:1", "h:2", 7) == (found.server.kafka, found.server.native, found.kafka.node_id)
    assert Settings().storage == found.storage


@pytest.mark.parametrize("content", [b"", b"kledger", b"x" * 100])
def test_other_input_is_refused(pipe: list[int], content: bytes) -> None:
    os.write(pipe[1], content)
    os.close(pipe.pop())
    with pytest.raises(NoWorkerStart, match="expected a process that `kledger serve --workers`"):
        WorkerStart.read(pipe[0])


def test_input_that_breaks_off_is_refused(pipe: list[int]) -> None:
    os.write(pipe[1], WorkerStart(identity=IDENTITY, settings=Settings()).encode()[:-1])
    os.close(pipe.pop())
    with pytest.raises(NoWorkerStart, match="the parent process has ended"):
        WorkerStart.read(pipe[0])


def test_terminal_is_not_read() -> None:
    controller, terminal = os.openpty()
    try:
        with pytest.raises(NoWorkerStart):
            WorkerStart.read(terminal)
    finally:
        os.close(controller)
        os.close(terminal)


async def test_end_of_the_pipe_is_the_end_of_the_parent(pipe: list[int]) -> None:
    ended = asyncio.Event()
    watch_parent(asyncio.get_running_loop(), ended.set, pipe[0])
    os.close(pipe.pop())
    await ended.wait()
