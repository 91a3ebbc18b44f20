"""WorkerStart: what a worker's process reads from its standard input, and how it sees the parent.

    offset  size  name
    0       8     mark
    8       4     size of the content
    12            content, a pickled WorkerStart; then nothing until the parent ends

Rule: all processes of one parent get the settings that the parent has read, also those that are
started hours after the file was changed. The pipe stays open as long as the parent lives:
a worker sees its end whatever ended the parent, also if that was before the worker's first read.
Must not know: what settings mean.
"""

import asyncio
import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any, Final

from kledger.settings import Settings
from kledger.workers.worker_identity import WorkerIdentity

_HEAD: Final = Struct(">8sI")
_MARK: Final = b"kledgerW"
STDIN: Final = 0


class NoWorkerStart(ValueError):
    """Standard input has something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStart:
    """Everything that a worker starts from."""

    identity: WorkerIdentity
    settings: Settings

    def encode(self) -> bytes:
        """Return the bytes for the standard input of a worker."""
        content = pickle.dumps(self)
        return _HEAD.pack(_MARK, len(content)) + content

    @classmethod
    def read(cls, descriptor: int = STDIN) -> "WorkerStart":
        """Read it, and leave the pipe open for `watch_parent`.

        Raises:
            NoWorkerStart: the process was not started as a worker.
        """
        head = b"" if os.isatty(descriptor) else _read_exactly(descriptor, _HEAD.size)
        if len(head) < _HEAD.size or not head.startswith(_MARK):
            raise NoWorkerStart("expected a process that `kledger serve --workers` has started")
        _, size = _HEAD.unpack(head)
        content = _read_exactly(descriptor, size)
        if len(content) < size:
            raise NoWorkerStart("the parent process has ended")
        found = pickle.loads(content)  # noqa: S301 - from our own parent
        assert isinstance(found, cls), type(found)
        return found


def changed(settings: Settings, changes: Mapping[str, object]) -> Settings:
    """Return settings with other values, which are named `section.field`."""
    by_section: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        section, _, field = name.partition(".")
        by_section.setdefault(section, {})[field] = value
    sections: dict[str, Any] = {
        section: replace(getattr(settings, section), **fields)
        for section, fields in by_section.items()
    }
    return replace(settings, **sections)


def watch_parent(
    loop: asyncio.AbstractEventLoop, on_ended: Callable[[], None], descriptor: int = STDIN
) -> None:
    """Call `on_ended` once, when the parent has ended."""

    def readable() -> None:
        if not os.read(descriptor, _HEAD.size):
            loop.remove_reader(descriptor)
            on_ended()

    loop.add_reader(descriptor, readable)


def _read_exactly(descriptor: int, size: int) -> bytes:
    """Return so many bytes, or fewer if there are no more."""
    content = bytearray()
    while len(content) < size and (part := os.read(descriptor, size - len(content))):
        content += part
    return bytes(content)
