"""kledger: a Kafka-protocol gateway over a managed ledger.

Rule: importing this package is cheap, and finds out whether every room of the application comes
from the same place; a user's own folder called `ledger` would otherwise be taken for ours. It says
so at once, and everything that needs the rooms refuses to work; what starts a process does not.
Must not know: how a server is built (`kledger.wiring`).
"""

import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kledger import ledger, sync  # noqa: F401 - so that `kledger.sync` has a type
    from kledger.embedding import EmbeddedClient
    from ledger import StorageEngine
    from native.client import Client
    from native.consumer import Consumer
    from native.errors import (
        AlreadyClosed,
        ConsumerAssign,
        ConsumerBusy,
        Full,
        InvalidArgument,
        KledgerError,
        NotAllowed,
        SubscriptionFenced,
        SubscriptionNotFound,
        Timeout,
        TopicExists,
        TopicNotFound,
        TopicTerminated,
        Unavailable,
        Unreadable,
    )
    from native.message import Message
    from native.message_id import MessageId
    from native.producer import Producer
    from native.reader import Reader
    from native.seam import SubscriptionStats, TopicStats
    from native.subscribe_options import DeadLetterPolicy
    from runtime.clock import Clock

__version__ = "0.1.0"

__all__ = [
    "AlreadyClosed",
    "Client",
    "Consumer",
    "ConsumerAssign",
    "ConsumerBusy",
    "DeadLetterPolicy",
    "EmbeddedClient",
    "Full",
    "InvalidArgument",
    "KledgerError",
    "Message",
    "MessageId",
    "NotAllowed",
    "Producer",
    "Reader",
    "SubscriptionFenced",
    "SubscriptionNotFound",
    "SubscriptionStats",
    "Timeout",
    "TopicExists",
    "TopicNotFound",
    "TopicStats",
    "TopicTerminated",
    "Unavailable",
    "Unreadable",
    "connect",
    "embedded",
]

ROOMS = (
    "batches", "gateway", "ledger", "native", "offsets", "runtime", "subscriptions", "topics",
)  # fmt: skip


# Where the names of the native client are, which is loaded by whoever uses one of them.
_HOMES = {
    "native.client": ("Client",),
    "native.consumer": ("Consumer",),
    "native.errors": (
        "AlreadyClosed", "ConsumerAssign", "ConsumerBusy", "Full", "InvalidArgument",
        "KledgerError", "NotAllowed", "SubscriptionFenced", "SubscriptionNotFound", "Timeout",
        "TopicExists", "TopicNotFound", "TopicTerminated", "Unavailable", "Unreadable",
    ),
    "native.message": ("Message",),
    "native.message_id": ("MessageId",),
    "native.producer": ("Producer",),
    "native.reader": ("Reader",),
    "native.seam": ("SubscriptionStats", "TopicStats"),
    "native.subscribe_options": ("DeadLetterPolicy",),
    "kledger.embedding": ("EmbeddedClient",),
}  # fmt: skip
# Packages and modules that `import kledger` is enough for.
_PARTS = ("ledger", "sync")


def embedded(
    path: Path | str | None,
    *,
    kafka: str | None = None,
    settings: Mapping[str, object] | None = None,
    operation_timeout_ms: int = 30_000,
    engine: "StorageEngine | None" = None,
    clock: "Clock | None" = None,
) -> "EmbeddedClient":
    """Return a native client with the whole server in this process; it starts on entering.

    Args:
        path: folder of the data; None keeps everything in memory.
        kafka: HOST:PORT for Kafka clients too, port 0 for a free one; see `kafka_address`.
        settings: of the server, by our names, Kafka's or Pulsar's.
        operation_timeout_ms: as `connect` has it.
        engine: stores everything in place of the usual one, such as a `FaultyEngine`; it is not
            closed with the client.
        clock: where the time of server and client comes from, such as a `ManualClock`.

    Raises:
        ImportError: something hides a part of the server.
    """
    require_rooms()
    from kledger.embedding import EmbeddedClient

    return EmbeddedClient(
        path, kafka=kafka, settings=settings, operation_timeout_ms=operation_timeout_ms,
        engine=engine, clock=clock,
    )  # fmt: skip


def connect(
    url: str,
    *,
    operation_timeout_ms: int = 30_000,
    keepalive_ms: int = 5_000,
    partition_refresh_ms: int = 60_000,
) -> "Client":
    """Return a native client of a running server; the connection is made on entering.

    Args:
        url: kledger://HOST:PORT, the address of the server's native listener; or several addresses
            of it, kledger://HOST:PORT,HOST:PORT, which are tried in turn.
        operation_timeout_ms: how long to connect, to subscribe, to seek and the like may take;
            then they raise `Timeout` or `Unavailable`, and may be tried again.
        keepalive_ms: how long a silent server is left alone, and may then take to answer, until it
            is taken for lost.
        partition_refresh_ms: how often producers and consumers look for new partitions.

    Raises:
        InvalidArgument: the URL is none, or a number cannot be.
        ImportError: something hides a part of the client.
    """
    require_rooms()
    from kledger.connecting import connected_client

    return connected_client(
        url,
        operation_timeout_ms=operation_timeout_ms,
        keepalive_ms=keepalive_ms,
        partition_refresh_ms=partition_refresh_ms,
    )


def __getattr__(name: str) -> object:
    if name in _PARTS:
        require_rooms()
        return import_module(f"kledger.{name}")
    for home, names in _HOMES.items():
        if name in names:
            require_rooms()
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _folder_of(room: str) -> Path | None:
    """Return where Python would take a room from, or has taken it from."""
    loaded = sys.modules.get(room)
    spec = loaded.__spec__ if loaded is not None else find_spec(room)
    if spec is None:
        return None
    # A folder without __init__.py has no origin, only places.
    places = list(spec.submodule_search_locations or ())
    return Path(places[0]) if places else Path(spec.origin or room)


def problem_with_rooms(home: Path) -> str | None:
    """Say what is in the way of our rooms, or None when each is the one beside this package.

    Args:
        home: the folder that holds this package.
    """
    for room in ROOMS:
        folder = _folder_of(room)
        if folder is None:
            return f"kledger is incomplete: {home / room} is missing"
        if folder != home / room and folder.resolve() != (home / room).resolve():
            return (
                f"{folder} hides kledger's own package {room!r} ({home / room}); rename it, or run "
                "the server as a process of its own (python -P -m kledger serve), as the pytest "
                "fixture kledger_server does"
            )
    return None


def require_rooms() -> None:
    """Refuse to go on when something else would be taken for a room.

    Raises:
        ImportError: says what hides which room.
    """
    if _problem is not None:
        raise ImportError(_problem)


_problem = problem_with_rooms(Path(__file__).parent.parent)
if _problem is not None:
    warnings.warn(_problem, RuntimeWarning, stacklevel=2)
