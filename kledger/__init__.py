"""kledger: a Kafka-protocol gateway over a managed ledger.

Rule: importing this package is cheap; the first use of a name loads its module. The packages below
it are the folders of the repository: `kledger/ledger` is a link to `ledger`.
Must not know: how a server is built (`kledger.wiring`).
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kledger import ledger, spark, sync  # noqa: F401 - so that `kledger.sync` has a type
    from kledger.embedding import EmbeddedClient
    from kledger.ledger import StorageEngine
    from kledger.native.broker import SubscriptionStats, TopicStats
    from kledger.native.channel_position import ChannelPosition
    from kledger.native.client.client import Client
    from kledger.native.client.compaction import CompactionStatus
    from kledger.native.client.consumer import Consumer
    from kledger.native.client.named_topics.element import CommitResult, Element
    from kledger.native.client.named_topics.named_topic import NamedTopic
    from kledger.native.client.named_topics.order_by import Orderable, OrderBy
    from kledger.native.client.named_topics.publisher import Publisher, PublishStatus
    from kledger.native.client.named_topics.subscriber import Subscriber
    from kledger.native.client.offload import OffloadStatus
    from kledger.native.client.producer import Producer
    from kledger.native.client.reader import Reader
    from kledger.native.client.subscribe_options import DeadLetterPolicy
    from kledger.native.client.table_view import TableView
    from kledger.native.compaction_strategy import CompactionStrategy
    from kledger.native.errors import (
        AlreadyClosed,
        CompactionRunning,
        ConsumerAssign,
        ConsumerBusy,
        Full,
        FunctionFailed,
        IllegalArgument,
        IllegalState,
        InvalidArgument,
        KledgerError,
        NamespaceExists,
        NamespaceNotFound,
        NotAllowed,
        OffloadInProgress,
        SubscriptionFenced,
        SubscriptionNotFound,
        Timeout,
        TopicExists,
        TopicFull,
        TopicNotFound,
        TopicTerminated,
        Unavailable,
        Unreadable,
    )
    from kledger.native.message import Message
    from kledger.native.message_id import MessageId
    from kledger.runtime.clock import Clock

__version__ = "0.1.0"

__all__ = [
    "AlreadyClosed",
    "ChannelPosition",
    "Client",
    "CommitResult",
    "CompactionRunning",
    "CompactionStatus",
    "CompactionStrategy",
    "Consumer",
    "ConsumerAssign",
    "ConsumerBusy",
    "DeadLetterPolicy",
    "Element",
    "EmbeddedClient",
    "Full",
    "FunctionFailed",
    "IllegalArgument",
    "IllegalState",
    "InvalidArgument",
    "KledgerError",
    "Message",
    "MessageId",
    "NamedTopic",
    "NamespaceExists",
    "NamespaceNotFound",
    "NotAllowed",
    "OffloadInProgress",
    "OffloadStatus",
    "OrderBy",
    "Orderable",
    "Producer",
    "PublishStatus",
    "Publisher",
    "Reader",
    "Subscriber",
    "SubscriptionFenced",
    "SubscriptionNotFound",
    "SubscriptionStats",
    "TableView",
    "Timeout",
    "TopicExists",
    "TopicFull",
    "TopicNotFound",
    "TopicStats",
    "TopicTerminated",
    "Unavailable",
    "Unreadable",
    "connect",
    "embedded",
]

# The module of each name, loaded at its first use.
_HOMES = {
    "kledger.native.client.client": ("Client",),
    "kledger.native.client.compaction": ("CompactionStatus",),
    "kledger.native.client.consumer": ("Consumer",),
    "kledger.native.channel_position": ("ChannelPosition",),
    "kledger.native.client.named_topics.element": ("CommitResult", "Element"),
    "kledger.native.client.named_topics.named_topic": ("NamedTopic",),
    "kledger.native.client.named_topics.order_by": ("OrderBy", "Orderable"),
    "kledger.native.client.named_topics.publisher": ("PublishStatus", "Publisher"),
    "kledger.native.client.named_topics.subscriber": ("Subscriber",),
    "kledger.native.errors": (
        "AlreadyClosed", "CompactionRunning", "ConsumerAssign", "ConsumerBusy", "Full",
        "FunctionFailed", "IllegalArgument", "IllegalState", "InvalidArgument", "KledgerError",
        "NamespaceExists", "NamespaceNotFound", "NotAllowed", "OffloadInProgress",
        "SubscriptionFenced", "SubscriptionNotFound", "Timeout", "TopicExists", "TopicFull",
        "TopicNotFound", "TopicTerminated", "Unavailable", "Unreadable",
    ),
    "kledger.native.compaction_strategy": ("CompactionStrategy",),
    "kledger.native.message": ("Message",),
    "kledger.native.message_id": ("MessageId",),
    "kledger.native.client.offload": ("OffloadStatus",),
    "kledger.native.client.producer": ("Producer",),
    "kledger.native.client.reader": ("Reader",),
    "kledger.native.broker": ("SubscriptionStats", "TopicStats"),
    "kledger.native.client.subscribe_options": ("DeadLetterPolicy",),
    "kledger.native.client.table_view": ("TableView",),
    "kledger.embedding": ("EmbeddedClient",),
}  # fmt: skip
# Packages and modules that a program can use after `import kledger` alone.
_SUBMODULES = ("ledger", "spark", "sync")


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
        operation_timeout_ms: see `connect`.
        engine: storage to use in place of the usual one, such as a `FaultyEngine`; it is not closed
            with the client.
        clock: the clock of server and client, such as a `ManualClock`.
    """
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
    token: str | None = None,
    username: str | None = None,
    password: str | None = None,
    ca: Path | str | None = None,
    certificate: Path | str | None = None,
    key: Path | str | None = None,
) -> "Client":
    """Return a native client of a running server; the connection is made on entering.

    Args:
        url: kledger://HOST:PORT, the address of the server's native listener; or several addresses
            of it, kledger://HOST:PORT,HOST:PORT, which the client tries in order. With
            kledger+tls:// the connection is encrypted.
        operation_timeout_ms: how long to connect, to subscribe, to seek and the like may take;
            then they raise `Timeout` or `Unavailable`, and may be retried.
        keepalive_ms: after this time without data the client pings the server; without an answer in
            the same time again the connection counts as lost.
        partition_refresh_ms: how often producers and consumers look up new partitions.
        token: an access token (a JWT), with which the client logs in.
        username: logs in with `password`, in place of a token.
        password: of the user.
        ca: authorities that the server's certificate must have, in PEM or the path of a file; None:
            those of this machine. This one and the next two are for kledger+tls:// alone.
        certificate: with which the client logs in, likewise.
        key: the private key of the certificate, likewise, without a password.

    Raises:
        InvalidArgument: the URL, a number or a credential is invalid.
    """
    from kledger.connecting import connected_client

    return connected_client(
        url,
        operation_timeout_ms=operation_timeout_ms,
        keepalive_ms=keepalive_ms,
        partition_refresh_ms=partition_refresh_ms,
        token=token,
        username=username,
        password=password,
        ca=ca,
        certificate=certificate,
        key=key,
    )


def __getattr__(name: str) -> object:
    if name in _SUBMODULES:
        return import_module(f"kledger.{name}")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
