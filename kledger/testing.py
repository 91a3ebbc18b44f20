"""A whole server inside this process, for tests and demonstrations.

    async with kledger.testing.Server() as server:      # on the running event loop
        client = AIOKafkaProducer(bootstrap_servers=server.kafka_address)

    with kledger.testing.ServerThread(data=folder) as server:   # on a loop of its own
        ...

Rule: it is the server that `kledger serve` runs, with the same settings; a free port unless one is
asked for; everything in memory unless there is a folder. A crash is raised on leaving.
Must not know: anything that the wiring knows.
"""

import asyncio
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Self

import kledger.settings
import kledger.wiring


class _Addresses:
    """Where a server listens, as far as it has started."""

    _server: "kledger.wiring.Server | Server"

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
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            data: folder of the server's data; None keeps it in memory.
            kafka: where to listen for Kafka clients.
            native: where to listen for native clients; None: nowhere.
            admin: where to listen for administrators; None: nowhere.
            settings: further ones by our names, Kafka's or Pulsar's.

        Raises:
            SettingError: a setting does not exist or cannot have that value.
        """
        flags: dict[str, object] = {
            "server.kafka": kafka,
            "server.native": native,
            "server.admin": admin,
            "server.memory": data is None,
        }
        if data is not None:
            flags["server.data"] = str(data)
        self._crash: BaseException | None = None
        self._server: kledger.wiring.Server = kledger.wiring.Server(
            kledger.settings.load(flags={**(settings or {}), **flags}), on_crash=self._crashed
        )

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._server.stop()
        if self._crash is not None and error is None:
            raise self._crash

    def _crashed(self, error: BaseException) -> None:
        self._crash = self._crash or error


class ServerThread(_Addresses):
    """The same for programs without an event loop: the server gets a thread with one."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        kafka: str = "127.0.0.1:0",
        native: str | None = None,
        admin: str | None = None,
        settings: dict[str, object] | None = None,
    ) -> None:
        """Args: as for `Server`."""
        self._server: Server = Server(
            data, kafka=kafka, native=native, admin=admin, settings=settings
        )
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
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
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
