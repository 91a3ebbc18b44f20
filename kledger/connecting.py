"""A native client of a server that runs elsewhere.

Rule: a URL that cannot be is refused at once; whether somebody answers is found out on entering.
Must not know: how the two talk.
"""

from types import TracebackType

from kledger.setting_values import SettingError, split_address
from native.client import Client
from native.errors import InvalidArgument
from native.operations import OPERATION_TIMEOUT_MS
from native.rpc_client import RpcClient
from native.seam import Broker

SCHEME = "kledger://"


def connected_client(url: str, *, operation_timeout_ms: int = OPERATION_TIMEOUT_MS) -> Client:
    """Return what `kledger.connect` does."""
    given: object = url
    if not isinstance(given, str) or not given.startswith(SCHEME):
        raise InvalidArgument(f"expected a URL like {SCHEME}127.0.0.1:9093, got {given!r}")
    address = given.removeprefix(SCHEME).rstrip("/")
    try:
        split_address("url", address)
    except SettingError as error:
        raise InvalidArgument(str(error)) from None
    server = _RemoteServer(address, operation_timeout_ms)
    return Client(server, operation_timeout_ms=operation_timeout_ms)


class _RemoteServer:
    """The connection, as the client enters and leaves it."""

    def __init__(self, address: str, operation_timeout_ms: int) -> None:
        self._address = address
        self._operation_timeout_ms = operation_timeout_ms
        self._connection: RpcClient | None = None

    async def __aenter__(self) -> Broker:
        connection = RpcClient(self._address, operation_timeout_ms=self._operation_timeout_ms)
        try:
            await connection.connect()
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        return connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            await self._connection.close()
