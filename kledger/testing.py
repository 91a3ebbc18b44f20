"""A whole server inside this process, for tests and demonstrations.

    async with kledger.testing.Server() as server:      # on the running event loop
        client = AIOKafkaProducer(bootstrap_servers=server.kafka_address)

    with kledger.testing.ServerThread(data=folder) as server:   # on a loop of its own
        ...

    with kledger.testing.FaultyServer() as server:      # the same, with faults on demand
        server.fail_next("sync")

Rule: it is the server of `kledger serve`, with the same settings; on a free port unless the test
names one, and in memory unless it names a folder. A crash is raised on leaving.
Must not know: how a server is built.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self

import kledger.settings
import kledger.wiring
from kledger.gateway.net.request_faults import RequestFaults, RequestHold, api_key_of
from kledger.gateway.net.server import ConnectionMaker
from kledger.ledger import LedgerError, StorageEngine
from kledger.ledger.testing import OPERATIONS, FaultyEngine, Hold
from kledger.runtime.clock import Clock


class _Addresses:
    """The addresses of a started server."""

    _server: "kledger.wiring.BrokerServer | Server"

    @property
    def kafka_address(self) -> str:
        """HOST:PORT of the Kafka listener."""
        return self._server.kafka_address

    @property
    def native_address(self) -> str:
        """HOST:PORT of the native listener, empty without one."""
        return self._server.native_address

    @property
    def admin_address(self) -> str:
        """HOST:PORT of the admin listener, empty without one."""
        return self._server.admin_address


class Server(_Addresses):
    """An asynchronous context manager around one server."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        kafka: str = "127.0.0.1:0",
        native: str | None = None,
        admin: str | None = None,
        settings: dict[str, object] | None = None,
        engine: StorageEngine | None = None,
        clock: Clock | None = None,
        make_connection: ConnectionMaker | None = None,
        leader_epoch: int = 0,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            data: folder of the server's data; None keeps it in memory.
            kafka: the address for Kafka clients.
            native: the address for native clients, None without this listener.
            admin: the address for administrators, None without this listener.
            settings: further ones by our names, Kafka's or Pulsar's.
            engine: the storage, in place of the usual one, such as a `FaultyEngine`; it is not
                closed with the server.
            clock: in place of the machine's, such as a `ManualClock`, which any thread may move.
            make_connection: serves Kafka clients in place of the usual connection.
            leader_epoch: under which it leads its partitions; a higher one than before is what
                clients see when another server has taken over the folder.

        Raises:
            SettingError: a setting does not exist, or its value is invalid.
        """
        flags: dict[str, object] = {
            "server.kafka": kafka,
            "server.native": native,
            "server.admin": admin,
            "server.memory": data is None,
        }
        if data is not None:
            flags["server.data"] = str(data)
        self.crash: BaseException | None = None
        """The error after which the server could not continue."""
        self.on_crash: Callable[[], None] = lambda: None
        """Called on the server's event loop after a crash."""
        self._server: kledger.wiring.BrokerServer = kledger.wiring.BrokerServer(
            kledger.settings.load(flags={**(settings or {}), **flags}),
            on_crash=self._crashed,
            engine=engine,
            clock=clock,
            make_connection=make_connection,
            leader_epoch=leader_epoch,
        )

    async def start(self) -> None:
        """Accept connections.

        Raises:
            CannotStart: everything is closed again.
        """
        await self._server.start()

    async def stop(self) -> None:
        """Stop in order. May be repeated.

        Raises:
            LedgerError: a flush failed; everything is closed nevertheless.
        """
        await self._server.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()
        if self.crash is not None and error is None:
            raise self.crash

    def _crashed(self, error: BaseException) -> None:
        self.crash = self.crash or error
        self.on_crash()


class ServerThread(_Addresses):
    """A server for programs without an event loop: it has a thread with one."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        kafka: str = "127.0.0.1:0",
        native: str | None = None,
        admin: str | None = None,
        settings: dict[str, object] | None = None,
        engine: StorageEngine | None = None,
        clock: Clock | None = None,
        make_connection: ConnectionMaker | None = None,
        leader_epoch: int = 0,
    ) -> None:
        """Args: as for `Server`."""
        self._server: Server = Server(
            data, kafka=kafka, native=native, admin=admin, settings=settings,
            engine=engine, clock=clock, make_connection=make_connection,
            leader_epoch=leader_epoch,
        )  # fmt: skip
        self._started: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._end: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = Thread(target=self._run, name="kledger", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._loop is not None and self._end is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._ended.result()

    def _run(self) -> None:
        import uvloop

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            if not self._started.done():
                self._started.set_exception(error)
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with self._server:
            self._started.set_result(None)
            await self._end.wait()


class FaultyServer(ServerThread):
    """A server in a thread whose requests and storage fail, stop or start late on demand.

    A fault holds for the next request, or operation of the storage, of its kind. A storage fault
    that ends `kledger serve` ends this server too; `restart` starts it again. Every method may be
    called in any thread but the server's own.

    Attributes:
        engine: the server's storage; it is closed with the server.
    """

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        kafka: str = "127.0.0.1:0",
        native: str | None = None,
        settings: dict[str, object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Args: as for `Server`."""
        self.engine = FaultyEngine(data)
        self._requests = RequestFaults()
        self._is_restarting: dict[str, Any] = {
            "data": data, "settings": settings, "clock": clock,
            "engine": self.engine, "make_connection": self._requests.make_connection,
        }  # fmt: skip
        super().__init__(**self._is_restarting, kafka=kafka, native=native)
        self._lock = asyncio.Lock()
        self._is_left = False
        self._has_storage_faults = False

    def fail_next(self, what: str | int, error: str | int | BaseException | None = None) -> None:
        """Let the next request of an API, or operation of the storage, fail.

        Args:
            what: Kafka's name of an API or its key (`Produce`, 0): the request is answered with the
                error and not executed. Or `commit`, `sync` or `read` of the storage.
            error: of a request, Kafka's name or number (`NOT_LEADER_OR_FOLLOWER`, 6); without one
                its connection is closed. Of the storage, an exception, such as an OSError.

        Raises:
            ValueError: there is no such API or operation, and the message lists them; or the error
                is of the other kind.
        """
        if what in OPERATIONS:
            if isinstance(error, str | int):
                raise ValueError(f"{what}: expected an exception, got {error!r}")
            self._has_storage_faults = True
            self.engine.fail_next(what, error)
        else:
            if isinstance(error, BaseException):
                raise ValueError(f"{what}: expected the name of an error, got {error!r}")
            self._requests.fail_next(_check_api(what), error)

    def hold_next(self, what: str | int) -> Hold | RequestHold:
        """Stop the next request or operation of a kind before it starts, until it is released.

        Await `reached()` of the result, or call `wait_reached()`; then `release()` or `fail()`.
        """
        if what in OPERATIONS:
            self._has_storage_faults = True
            return self.engine.hold_next(what)
        return self._requests.hold_next(_check_api(what))

    def delay_next(self, what: str | int, ms: int) -> None:
        """Let the next request or operation of a kind start `ms` later.

        A request waits by the server's clock, an operation of the storage in real time.
        """
        if what in OPERATIONS:
            self.engine.delay_next(what, ms)
        else:
            self._requests.delay_next(_check_api(what), ms)

    def disarm(self) -> None:
        """Cancel all faults that have not happened yet, and release what is held."""
        self._requests.clear()
        self.engine.disarm()

    def restart(self) -> None:
        """Cut the server's power and start it again at the same addresses, without any fault.

        Unsynced writes are lost. Returns when the server accepts connections.
        """
        assert self._loop is not None, "the server was not started"
        asyncio.run_coroutine_threadsafe(self._restart(), self._loop).result()

    def __enter__(self) -> Self:
        try:
            return super().__enter__()
        except BaseException:
            self.engine.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.disarm()
        self._is_left = True
        try:
            super().__exit__(kind, error, traceback)
        finally:
            self.engine.close()

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._server.on_crash = self._end.set
        await self._server.start()
        self._started.set_result(None)
        while not self._is_left:
            await self._end.wait()
            self._end.clear()
            async with self._lock:
                await self._stop_if_over()

    async def _stop_if_over(self) -> None:
        """Stop a server that crashed or was left; raise a crash that the test did not cause."""
        crash = self._server.crash
        if crash is None and not self._is_left:
            return
        try:
            await self._server.stop()
        except LedgerError:
            if not self._has_storage_faults:
                raise
        if crash is not None and not (self._has_storage_faults and isinstance(crash, LedgerError)):
            raise crash

    async def _restart(self) -> None:
        async with self._lock:
            # Held operations must not reach the storage, so its power is cut first.
            self.engine.drop_unsynced()
            with suppress(LedgerError):
                await self._server.stop()
            self._requests.clear()
            kafka, native = self.kafka_address, self.native_address or None
            self._server = Server(**self._is_restarting, kafka=kafka, native=native)
            assert self._end is not None
            self._server.on_crash = self._end.set
            await self._server.start()


def _check_api(api: str | int) -> str | int:
    """Return the key of an API.

    Raises:
        ValueError: there is no API and no operation of the storage of that name.
    """
    try:
        return api_key_of(api)
    except ValueError as error:
        raise ValueError(f"{error}; and of the storage {', '.join(OPERATIONS)}") from None
