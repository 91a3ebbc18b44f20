"""Broker connections: requests to the brokers of one cluster, and what may be sent again.

Rule: a request that may soon succeed (a broker restarts, a leader moves, a coordinator loads) is
retried, RETRIES times by default. Any other error, also a refused login, is a KafkaFailed with
Kafka's name of the error. The end of a session counts as a lost connection.
Must not know: topics and partitions.
"""

from collections.abc import Callable
from threading import Event
from typing import Final, Self, TypeVar

from kledger.broker_client.broker_connection import BrokerConnection, ConnectionLost
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k17_sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kledger.gateway.wire.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kledger.gateway.wire.schema import ApiMessage
from kledger.runtime.entropy import SystemEntropy
from kledger.security.client.client_security import INSECURE, ClientLogin, ClientSecurity
from kledger.security.client.login_state import ServerRefused, login_tokens
from kledger.security.client.tls_client_context import make_client_context

RETRIES: Final = 60
WAIT_FIRST_S: Final = 0.05
WAIT_MAX_S: Final = 1.0
NONCE_BYTES: Final = 24
RETRIABLE: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR, ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)  # fmt: skip

R = TypeVar("R", bound=ApiMessage)
T = TypeVar("T")


class KafkaFailed(RuntimeError):
    """A broker answered with an error."""

    def __init__(self, what: str, code: int) -> None:
        self.code = code
        names = ErrorCode.__members__.values()
        name = ErrorCode(code).name if code in names else f"error {code}"
        super().__init__(f"{what}: {name}")


class BrokerConnections:
    """Connections to the brokers of one cluster; not for several threads at once."""

    def __init__(
        self,
        servers: str,
        security: ClientSecurity = INSECURE,
        *,
        client_id: str,
        retries: int = RETRIES,
    ) -> None:
        """Prepare; the first request connects.

        Args:
            servers: HOST:PORT of brokers, separated by commas.
            security: with what every connection begins.
            client_id: what the brokers log and limit the client by.
            retries: how often a request is sent again at most, with a second between two.

        Raises:
            ValueError: an address has no port, or certificate and key do not work together.
        """
        self._client_id, self._retries = client_id, retries
        self._login = security.login
        self._tls = None if security.tls is None else make_client_context(security.tls)
        self._servers = [_address(each.strip()) for each in servers.split(",")]
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._pause = Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        while self._connections:
            self._connections.popitem()[1].close()

    def retried(self, attempt: Callable[[], T]) -> T:
        """Call a function again, with new connections, while it fails for reasons that pass.

        Raises:
            KafkaFailed, ConnectionLost: the last failure, or the first one that does not pass.
        """
        wait_s = WAIT_FIRST_S
        for _ in range(self._retries):
            try:
                return attempt()
            except KafkaFailed as error:
                if error.code not in RETRIABLE:
                    raise
            except ConnectionLost:
                pass
            self.close()
            self._pause.wait(wait_s)
            wait_s = min(2 * wait_s, WAIT_MAX_S)
        return attempt()

    def ask(
        self, request: ApiMessage, response: type[R], broker: tuple[str, int] | None = None
    ) -> R:
        """Send a request to a broker, or to the first that can be reached, and return its response.

        Raises:
            ConnectionLost: there was none.
        """
        connection = self._any() if broker is None else self._connected(broker)
        connection.send(request)
        return connection.receive(response)

    def _any(self) -> BrokerConnection:
        for broker in (*self._connections, *self._servers):
            try:
                return self._connected(broker)
            except ConnectionLost as error:
                lost = error
        raise lost

    def _connected(self, broker: tuple[str, int]) -> BrokerConnection:
        connection = self._connections.get(broker)
        if connection is None:
            connection = BrokerConnection(*broker, self._tls, client_id=self._client_id)
            try:
                if self._login is not None:
                    log_in(connection, self._login)
            except BaseException:
                connection.close()
                raise
            self._connections[broker] = connection
        return connection


def check(what: str, code: int) -> None:
    """Raise what an error code means.

    Raises:
        KafkaFailed: the code is not 0; `what` begins the message.
    """
    if code != ErrorCode.NONE:
        raise KafkaFailed(what, code)


def log_in(connection: BrokerConnection, login: ClientLogin) -> None:
    """Log in on a new connection.

    Raises:
        KafkaFailed: the broker does not know the mechanism, or refuses the login; or it did not
            prove its identity.
        ConnectionLost: it closed the connection.
    """
    what = f"login with {login.mechanism}"
    connection.send(SaslHandshakeRequest(mechanism=login.mechanism))
    chosen = connection.receive(SaslHandshakeResponse)
    check(f"{what}, the broker has {', '.join(chosen.mechanisms)}", chosen.error_code)
    tokens = login_tokens(login, SystemEntropy().token(NONCE_BYTES).hex())
    token = next(tokens)
    while True:
        connection.send(SaslAuthenticateRequest(auth_bytes=token))
        answer = connection.receive(SaslAuthenticateResponse)
        check(f"{what}: {answer.error_message}", answer.error_code)
        try:
            token = tokens.send(answer.auth_bytes)
        except StopIteration:
            return
        except ServerRefused as error:
            raise KafkaFailed(f"{what}: {error}", ErrorCode.SASL_AUTHENTICATION_FAILED) from None


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"server {text!r}, expected HOST:PORT")
    return host.strip("[]"), int(port)
