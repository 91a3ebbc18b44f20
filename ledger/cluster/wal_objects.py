"""WAL objects: the object store as an engine's threads use it.

Rule: a key is written with one content only, so a late or repeated PUT changes nothing. The
requests run on a separate event loop; any thread may wait for them.
Must not know: groups, when requests are repeated.
"""

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import Protocol

from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import LedgerError, NonRecoverable
from kledger.ledger.offload.object_store import ObjectStore
from kledger.runtime.loop_thread import LoopThread


class ObjectStoreFailed(Exception):
    """A request failed; a PUT may have been stored, or be stored yet."""


class ObjectMissing(ObjectStoreFailed):
    """The store answers that there is no such object."""


class WalObjects(Protocol):
    """Objects by key; all methods may be called in any thread, and those with a result block."""

    def begin_put(self, key: str, data: Buffer) -> "Future[None]":
        """Begin to store an object, whose bytes must not change; fails with ObjectStoreFailed."""
        ...

    def begin_get(self, key: str, start: int, length: int) -> "Future[Buffer]":
        """Begin to read bytes of an object, all of them.

        It fails with ObjectMissing or ObjectStoreFailed.
        """
        ...

    def delete(self, key: str) -> None:
        """Delete an object; one that does not exist is no error. Raises ObjectStoreFailed."""
        ...

    def list(self, prefix: str) -> Sequence[str]:
        """Return the keys below a prefix, which ends at a slash. Raises ObjectStoreFailed."""
        ...

    def wait(self, requests: "Collection[Future[None]]", ms: int) -> None:
        """Wait until one of the requests ends, or for some time."""
        ...

    def close(self) -> None:
        """Cancel what is under way. May be repeated."""
        ...


class StoredWalObjects:
    """`WalObjects` in an object store."""

    def __init__(self, store: ObjectStore, loop: LoopThread) -> None:
        """Args: loop: a started one, where the requests run; it is stopped by `close`."""
        self._store = store
        self._loop = loop

    def begin_put(self, key: str, data: Buffer) -> "Future[None]":
        """Begin to store an object; see `WalObjects`."""
        return self._loop.begin(self._put(key, data))

    def begin_get(self, key: str, start: int, length: int) -> "Future[Buffer]":
        """Begin to read bytes of an object; see `WalObjects`."""
        return self._loop.begin(self._get(key, start, length))

    def delete(self, key: str) -> None:
        """Delete an object; see `WalObjects`."""
        self._loop.run(self._delete(key))

    def list(self, prefix: str) -> Sequence[str]:
        """Return the keys below a prefix; see `WalObjects`."""
        return self._loop.run(self._list(prefix))

    def wait(self, requests: "Collection[Future[None]]", ms: int) -> None:
        """Wait for a request; see `WalObjects`."""
        wait(requests or [Future()], ms / 1000, return_when=FIRST_COMPLETED)

    def close(self) -> None:
        """Cancel what is under way. May be repeated."""
        self._loop.stop()

    async def _put(self, key: str, data: Buffer) -> None:
        with _failures():
            await self._store.put(key, data)

    async def _get(self, key: str, start: int, length: int) -> Buffer:
        with _failures():
            return whole(await self._store.get_range(key, start, length), key, length)

    async def _delete(self, key: str) -> None:
        with _failures():
            await self._store.delete(key)

    async def _list(self, prefix: str) -> Sequence[str]:
        with _failures():
            return [each.name for each in await self._store.list(prefix)]


def whole(data: Buffer, key: str, length: int) -> Buffer:
    """Return the bytes of a response. Raises ObjectStoreFailed: it ended early; ask again."""
    if len(data) < length:
        raise ObjectStoreFailed(f"getting {key}: got {len(data)} bytes, expected {length}")
    return data


@contextmanager
def _failures() -> Iterator[None]:
    """Raise what the methods of `WalObjects` raise."""
    try:
        yield
    except NonRecoverable as error:
        raise ObjectMissing(str(error)) from error
    except LedgerError as error:
        raise ObjectStoreFailed(str(error)) from error
