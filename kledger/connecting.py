"""A native client of a server in another process.

Rule: an invalid URL is an error at once; the connection is made on entering.
Must not know: the protocol between the two.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType

from kledger.native.broker import Broker
from kledger.native.client.client import Client
from kledger.native.client.operations import OPERATION_TIMEOUT_MS
from kledger.native.client.services import PARTITION_REFRESH_MS
from kledger.native.client.subscribe_options import check_number
from kledger.native.errors import InvalidArgument
from kledger.native.rpc.client import RpcClient
from kledger.native.rpc.client_credentials import ClientCredentials
from kledger.native.rpc.connection import KEEPALIVE_MS
from kledger.native.rpc.routing_broker import RoutingBroker
from kledger.native.rpc.tls import ClientTls
from kledger.setting_values import SettingError, split_address

SCHEME = "kledger://"
TLS_SCHEME = "kledger+tls://"
MILLISECONDS_MAX = (1 << 31) - 1
"""The largest time that the transport takes."""


def connected_client(
    url: str,
    *,
    operation_timeout_ms: int = OPERATION_TIMEOUT_MS,
    keepalive_ms: int = KEEPALIVE_MS,
    partition_refresh_ms: int = PARTITION_REFRESH_MS,
    token: str | None = None,
    username: str | None = None,
    password: str | None = None,
    ca: Path | str | None = None,
    certificate: Path | str | None = None,
    key: Path | str | None = None,
) -> Client:
    """Make the client of `kledger.connect`, which documents the arguments."""
    check_number("keepalive_ms", keepalive_ms, at_least=1, at_most=MILLISECONDS_MAX)
    check_number("partition_refresh_ms", partition_refresh_ms, at_least=1)
    addresses = addresses_of(url)
    credentials = ClientCredentials(
        token=token, username=username, password=password, tls=_tls_of(url, ca, certificate, key)
    )
    credentials.check()
    connect = partial(
        RpcClient,
        keepalive_ms=keepalive_ms,
        operation_timeout_ms=operation_timeout_ms,
        credentials=credentials,
    )
    return Client(
        _RemoteServer(addresses, connect),
        partition_refresh_ms=partition_refresh_ms,
        operation_timeout_ms=operation_timeout_ms,
    )


def _tls_of(
    url: str, ca: Path | str | None, certificate: Path | str | None, key: Path | str | None
) -> ClientTls | None:
    given = {"ca": ca, "certificate": certificate, "key": key}
    texts = {name: str(value) for name, value in given.items() if value is not None}
    if url.startswith(TLS_SCHEME):
        return ClientTls(**texts)
    if texts:
        raise InvalidArgument(f"{', '.join(texts)}: expected a URL like {TLS_SCHEME}HOST:PORT")
    return None


def addresses_of(url: str) -> list[str]:
    """Return the addresses that a URL names, HOST:PORT each.

    Raises:
        InvalidArgument: the URL is invalid.
    """
    given: object = url
    if not isinstance(given, str) or not given.startswith((SCHEME, TLS_SCHEME)):
        raise InvalidArgument(f"expected a URL like {SCHEME}127.0.0.1:9093, got {given!r}")
    addresses = given.partition("://")[2].rstrip("/").split(",")
    try:
        for address in addresses:
            split_address("url", address)
    except SettingError as error:
        raise InvalidArgument(str(error)) from None
    if len(set(addresses)) < len(addresses):
        raise InvalidArgument(f"url: an address is named twice in {given!r}")
    return addresses


class _RemoteServer:
    """The connection, as the client enters and leaves it; of a cluster, those to its brokers."""

    def __init__(self, addresses: Sequence[str], prepare: Callable[..., RpcClient]) -> None:
        """Prepare.

        Args:
            addresses: of the server.
            prepare: makes the connection to addresses, on the event loop that will use it.
        """
        self._addresses = addresses
        self._prepare = prepare
        self._connection: RpcClient | RoutingBroker | None = None

    async def __aenter__(self) -> Broker:
        connection = self._prepare(*self._addresses)
        try:
            await connection.connect()
        except BaseException:
            await connection.close()
            raise
        if connection.brokers:
            self._connection = RoutingBroker(connection, self._prepare)
        else:
            self._connection = connection
        return self._connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            await self._connection.close()
