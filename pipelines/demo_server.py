"""The demonstration's own server, in a thread of this process, with a folder as its tier.

Rule: it keeps its data and its addresses over a restart. Must not know: what is stored.
"""

from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from kledger.testing import ServerThread

CHECK_INTERVAL_MS: Final = 100
"""How often the server looks for ledgers to offload, and for primary copies to delete."""


class RestartableServer(Protocol):
    """A server at fixed addresses, HOST:PORT, which `restart` leaves with nothing in memory."""

    bootstrap: str
    native: str

    def restart(self) -> None:
        """Return when it serves again."""
        ...


class DemoServer:
    """A server that can be started again.

    Attributes:
        bootstrap: HOST:PORT for Kafka clients.
        native: HOST:PORT for native clients.
    """

    def __init__(self, data: Path, tier: Path) -> None:
        """Make one; `data` and `tier` are absolute paths of folders."""
        self.bootstrap = self.native = "127.0.0.1:0"
        self._data = data
        self._settings: dict[str, object] = {
            "offload.url": tier.as_uri(),
            "log.retention.check.interval.ms": CHECK_INTERVAL_MS,
        }
        self._running: ServerThread | None = None

    def __enter__(self) -> Self:
        """Start it."""
        server = ServerThread(
            self._data, kafka=self.bootstrap, native=self.native, settings=self._settings
        )
        self._running = server.__enter__()
        self.bootstrap, self.native = server.kafka_address, server.native_address
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it; its data stay."""
        running, self._running = self._running, None
        if running is not None:
            running.__exit__(kind, error, traceback)

    def restart(self) -> None:
        """Stop it and start it again, with nothing in memory."""
        self.__exit__(None, None, None)
        self.__enter__()
