"""Object store: objects by name, in one of the stores that the library `obstore` knows.

Rule: every error that leaves this module is TierUnavailable, NonRecoverable (no such object) or
InvalidArgument (the URL, an option, a name), and no message has a secret in it. The library runs
requests in threads of its own: nothing here blocks the event loop, and a cancelled call cancels its
request. Importing this module loads the library, which only a server with a tier needs.
Must not know: ledgers, layouts. Decision: docs/decisions/0029-obstore.md.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import obstore
import obstore.store

from kledger.ledger.engine.base import Buffer
from kledger.ledger.errors import InvalidArgument, LedgerError, NonRecoverable, TierUnavailable
from kledger.ledger.offload.object_store_options import (
    SECRET_OPTIONS,
    StoreOptions,
    checked_options,
)
from kledger.ledger.offload.unfinished_uploads import UnfinishedUploads
from kledger.runtime.blocking import BlockingRunner

PART_BYTES = 16 << 20
"""Size of the parts of an upload, each of which is a request that has a price; an object that is
smaller is uploaded with one request. S3 allows 10,000 parts, so an object can have 160 GB."""
PARTS_AT_ONCE = 2
"""Parts of one object that are uploaded at the same time; each is in memory."""
REQUEST_TIMEOUT = timedelta(seconds=30)
CONNECT_TIMEOUT = timedelta(seconds=5)
RETRIES_MAX = 6
"""How often the library repeats a request after a lost connection, a timeout or a status 5xx."""
RETRY_TIMEOUT = timedelta(seconds=60)
FIRST_BACKOFF = timedelta(milliseconds=100)
BACKOFF_MAX = timedelta(seconds=5)
ABORT_TIMEOUT_S = 5
"""How long `close` waits for the end of cancelled uploads."""
NAME_LENGTH_MAX = 900
"""S3 allows 1,024 bytes, prefix included."""
REASON_LENGTH_MAX = 400

_REQUEST = "Error performing "
_URL = re.compile(r"(https?://[^/\s]+)\S*")
_XML_ERROR = re.compile(
    r"(?:<\?xml.*?\?>\s*)?<Error\b.*?<Code>(.*?)</Code>.*?<Message>(.*?)</Message>.*"
)
_PART = r"(?!\.\.?(?:/|$))[A-Za-z0-9._-]+"
_NAME = re.compile(f"{_PART}(?:/{_PART})*")


class StoredObject(NamedTuple):
    """One object of a listing; `size` in bytes."""

    name: str
    size: int


class ObjectStore:
    """The objects below a URL; all names are relative to it.

    Attributes:
        url: as given; it has no secrets.
    """

    def __init__(
        self, url: str, options: Mapping[str, object] | None = None, *, pool: BlockingRunner
    ) -> None:
        """Make a store; no request is sent.

        Args:
            url: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`,
                `file:///folder` (made if it does not exist) or `memory://` (gone with this object).
            options: the library's own names; the usual environment variables count, too.
            pool: for syncs of a folder.

        Raises:
            InvalidArgument: the URL or an option is not valid; the message says what is.
        """
        options = options or {}
        checked = checked_options(url, options)
        self.url = url
        self._pool = pool
        self._secrets = [str(options[name]) for name in SECRET_OPTIONS & options.keys()]
        self._folder = Path(unquote(urlsplit(url).path)) if checked.scheme == "file" else None
        self._aborts: set[asyncio.Future[None]] = set()
        self._unfinished = UnfinishedUploads(url, options) if checked.scheme == "s3" else None
        try:
            self._store = self._made(checked)
        except Exception as error:  # noqa: BLE001 - the library has no common base class of errors
            raise InvalidArgument(
                f"object store {url}: {self._reason(error)}; "
                f"options given: {', '.join(sorted(options)) or '(none)'}"
            ) from None

    def _made(self, options: StoreOptions) -> "obstore.store.ObjectStore":
        if self._folder is not None:
            return obstore.store.LocalStore(self._folder, automatic_cleanup=True, mkdir=True)
        if options.scheme == "memory":
            return obstore.store.MemoryStore()
        of_store = dict(options.store)
        if options.scheme == "s3":
            # Every S3 server knows how to delete one object, not all how to delete several.
            of_store.setdefault("disable_bulk_delete", True)
        # Its stubs have an overload for each kind of store; the names were checked.
        from_url: Callable[..., obstore.store.ObjectStore] = obstore.store.from_url
        return from_url(
            self.url,
            config=of_store,
            client_options={
                "timeout": REQUEST_TIMEOUT,
                "connect_timeout": CONNECT_TIMEOUT,
                **options.client,
            },
            retry_config={
                "max_retries": RETRIES_MAX,
                "retry_timeout": RETRY_TIMEOUT,
                "backoff": {"init_backoff": FIRST_BACKOFF, "max_backoff": BACKOFF_MAX},
                **options.retry,
            },
        )

    # Whole objects

    async def put(self, name: str, data: Buffer) -> None:
        """Store a small object, replacing what has that name; readers see the old one or the new.

        Raises:
            TierUnavailable: it may or may not be stored.
        """
        with self.translated(f"writing {name}", missing=TierUnavailable):
            await obstore.put_async(self._store, _checked(name), data, use_multipart=False)
        await self._sync(name)

    async def get(self, name: str) -> Buffer:
        """Return a whole, small object.

        Raises:
            TierUnavailable, NonRecoverable.
        """
        with self.translated(f"reading {name}"):
            found = await obstore.get_async(self._store, _checked(name))
            return memoryview(await found.bytes_async())

    async def size(self, name: str) -> int:
        """Return the size of an object in bytes.

        Raises:
            TierUnavailable, NonRecoverable.
        """
        with self.translated(f"looking for {name}"):
            return (await obstore.head_async(self._store, _checked(name)))["size"]

    async def delete(self, name: str) -> None:
        """Delete an object; one that does not exist is no error.

        Raises:
            TierUnavailable: it may still be there.
        """
        with self.translated(f"deleting {name}", missing=None):
            await obstore.delete_async(self._store, _checked(name))
        if self._folder is not None:
            await self._pool.run(_delete_staged, self._folder, self._folder / name)

    async def list(self, prefix: str = "") -> Sequence[StoredObject]:
        """Return all objects below a prefix, which ends at a slash; sorted by name.

        Raises:
            TierUnavailable.
        """
        found: list[StoredObject] = []
        with self.translated(f"listing {prefix}", missing=None):
            async for page in obstore.list(self._store, prefix or None, chunk_size=1000):
                found += [StoredObject(each["path"], each["size"]) for each in page]
        return sorted(found)

    # Parts of objects

    async def get_range(self, name: str, start: int, length: int) -> Buffer:
        """Return bytes of an object; fewer if it ends before.

        Raises:
            TierUnavailable: also if the object ends before `start`.
            NonRecoverable: there is no such object.
        """
        with self.translated(f"reading {name}"):
            found = await obstore.get_range_async(
                self._store, _checked(name), start=start, length=length
            )
            return memoryview(found)

    async def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        """Return several ranges of an object, (start, length) each; near ones with one request.

        Raises:
            TierUnavailable, NonRecoverable: as `get_range`.
        """
        with self.translated(f"reading {name}"):
            found = await obstore.get_ranges_async(
                self._store,
                _checked(name),
                starts=[start for start, _ in ranges],
                lengths=[length for _, length in ranges],
            )
            return [memoryview(each) for each in found]

    @asynccontextmanager
    async def upload(self, name: str) -> AsyncIterator["ObjectUpload"]:
        """Upload an object of any size in parts; it exists when the block ends without an error.

        At most `PARTS_AT_ONCE` + 1 parts are in memory, and what one `write` is given. An error or
        a cancellation deletes the uploaded parts.

        Raises:
            TierUnavailable: it may or may not be stored, and parts may be left.
        """
        writer = obstore.open_writer_async(
            self._store, _checked(name), buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
        )
        try:
            yield ObjectUpload(self, writer, name)
        except BaseException as error:
            await self._abort(writer, error)
            raise
        with self.translated(f"writing {name}", missing=TierUnavailable):
            await writer.close()
        await self._sync(name)

    async def _abort(self, writer: "obstore.AsyncWritableFile", error: BaseException) -> None:
        """Delete the parts of an upload; a cancelled caller does not wait for it.

        Aborting waits for a write that was cancelled, since a request that begins an upload could
        not be aborted before its answer is there.
        """
        abort: asyncio.Future[None] = writer.__aexit__(  # type: ignore[assignment]  # as stubs say
            type(error), error, None
        )
        self._aborts.add(abort)
        abort.add_done_callback(self._aborted)
        if not isinstance(error, asyncio.CancelledError):
            await asyncio.wait([abort])

    def _aborted(self, abort: asyncio.Future[None]) -> None:
        self._aborts.discard(abort)
        if not abort.cancelled():
            abort.exception()  # the error that led to it is the one that is raised

    async def abort_uploads(self, name: str) -> None:
        """End what other processes have begun to upload in parts under a name, in S3.

        Azure forgets such parts after a week; of Google Cloud Storage, see decision 0049. Those of
        files go with `delete`.

        Raises:
            TierUnavailable: there may be some left.
        """
        if self._unfinished is not None:
            await self._unfinished.abort(_checked(name))

    async def unfinished_uploads(self) -> Sequence[str]:
        """Return the names of objects with unfinished uploads, as far as the store tells them.

        Raises:
            TierUnavailable.
        """
        return () if self._unfinished is None else await self._unfinished.names()

    async def close(self) -> None:
        """Wait for the end of cancelled uploads, for a few seconds. May be repeated."""
        if self._aborts:
            _, pending = await asyncio.wait(self._aborts, timeout=ABORT_TIMEOUT_S)
            for abort in pending:
                abort.cancel()
        if self._unfinished is not None:
            self._unfinished.close()

    # Files

    async def _sync(self, name: str) -> None:
        """Make a file durable, and its name: the library does not."""
        if self._folder is not None:
            try:
                await self._pool.run(_sync_file, self._folder, self._folder / name)
            except OSError as error:
                raise TierUnavailable(f"syncing {name} in {self.url}: {error.strerror}") from None

    # Errors

    @contextmanager
    def translated(
        self, doing: str, *, missing: type[LedgerError] | None = NonRecoverable
    ) -> Iterator[None]:
        """Translate what the library raises in the block.

        Args:
            doing: what failed, for the message.
            missing: the error for an object that does not exist; None if that is no error.
        """
        try:
            yield
        except LedgerError:
            raise
        except FileNotFoundError as error:
            if missing is not None:
                raise missing(f"{doing} in {self.url}: {self._reason(error)}") from None
        except Exception as error:  # noqa: BLE001 - the library has no common base class of errors
            raise TierUnavailable(f"{doing} in {self.url}: {self._reason(error)}") from None

    def _reason(self, error: Exception) -> str:
        """Return the library's message in one line, with what a server has said."""
        reason = " ".join(str(error).partition("\n\nDebug source")[0].split())
        reason = reason[max(reason.find(_REQUEST), 0) :]  # the path before it is in our message
        reason = _URL.sub(r"\1", reason)  # a query may have a signature
        if said := _XML_ERROR.search(reason):
            reason = f"{reason[: said.start()]}{said[1]}: {said[2]}"
        for secret in filter(None, self._secrets):
            reason = reason.replace(secret, "***")
        return reason[:REASON_LENGTH_MAX] or type(error).__name__


class ObjectUpload:
    """An upload under way."""

    def __init__(self, store: ObjectStore, writer: "obstore.AsyncWritableFile", name: str) -> None:
        self._store = store
        self._writer = writer
        self._name = name

    async def write(self, data: Buffer) -> None:
        """Append bytes, which must not change any more; waits while enough parts are under way.

        Raises:
            TierUnavailable.
        """
        with self._store.translated(f"writing {self._name}", missing=TierUnavailable):
            # Not cancelled with the caller: ObjectStore aborts the upload after it.
            await asyncio.shield(self._writer.write(data))


def _checked(name: str) -> str:
    if len(name) > NAME_LENGTH_MAX or not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"name of an object: expected parts of letters, digits, '.', '_' and '-' with slashes "
            f"between them, at most {NAME_LENGTH_MAX} characters, got {name[:100]!r}"
        )
    return name


def _sync_file(root: Path, path: Path) -> None:
    """Sync a file and the folders from it up to the root."""
    folders = [each for each in path.parents if each.is_relative_to(root)]
    for each in (path, *folders):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _delete_staged(root: Path, path: Path) -> None:
    """Delete what uploads that were killed left: `name#1`, which the library does not list."""
    for staged in path.parent.glob(f"{path.name}#*"):
        staged.unlink(missing_ok=True)
    for folder in path.parents:
        if folder == root:
            return
        try:
            folder.rmdir()
        except OSError:
            return  # not empty, or gone
