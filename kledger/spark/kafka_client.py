"""A small blocking Kafka client: what a data source asks brokers for.

Rule: what a broker may answer differently in a moment (it restarts, a leader moves, a coordinator
loads) is asked again, RETRIES times at most; any other error is a KafkaFailed with Kafka's name of
it, and so is a login that is refused. A session that has ended is a connection that was lost.
Must not know: Spark, Arrow.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Event
from typing import Final, Self, TypeVar

from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kledger.gateway.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kledger.gateway.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
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
from kledger.spark.broker_connection import BrokerConnection, ConnectionLost
from kledger.spark.offset_range import KafkaPartition

RETRIES: Final = 60
WAIT_FIRST_S: Final = 0.05
WAIT_MAX_S: Final = 1.0
FETCH_BYTES_MAX: Final = 8 << 20
FETCH_WAIT_MS: Final = 500
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


class KafkaClient:
    """Connections to the brokers of one cluster; not for several threads at once."""

    def __init__(self, servers: str, security: ClientSecurity = INSECURE) -> None:
        """Prepare; the first request connects.

        Args:
            servers: HOST:PORT of brokers, separated by commas.
            security: with what every connection begins.

        Raises:
            ValueError: an address has no port, or certificate and key do not work together.
        """
        self._login = security.login
        self._tls = None if security.tls is None else make_client_context(security.tls)
        self._servers = [_address(each.strip()) for each in servers.split(",")]
        self._connections: dict[tuple[str, int], BrokerConnection] = {}
        self._leaders: dict[KafkaPartition, tuple[str, int]] = {}
        self._pause = Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        while self._connections:
            self._connections.popitem()[1].close()
        self._leaders.clear()

    def retried(self, attempt: Callable[[], T]) -> T:
        """Call a function again, with new connections, while it fails for reasons that pass.

        Raises:
            KafkaFailed, ConnectionLost: the last failure, or the first one that does not pass.
        """
        wait_s = WAIT_FIRST_S
        for _ in range(RETRIES):
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

    def topics(self, names: Sequence[str] | None = None) -> dict[str, int]:
        """Return how many partitions topics have, and learn their leaders.

        Args:
            names: of the topics; None for all that there are.

        Raises:
            KafkaFailed: a topic does not exist, or may not be seen.
        """
        return self.retried(lambda: self._topics(names))

    def _topics(self, names: Sequence[str] | None) -> dict[str, int]:
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response = self.ask(request, MetadataResponse)
        brokers = {each.node_id: (each.host, each.port) for each in response.brokers}
        found = {}
        for topic in response.topics:
            if names is None and (topic.error_code or topic.is_internal):
                continue
            check(f"topic {topic.name}", topic.error_code)
            assert topic.name is not None
            for each in topic.partitions:
                where = KafkaPartition(topic.name, each.partition_index)
                if each.leader_id in brokers:
                    self._leaders[where] = brokers[each.leader_id]
            found[topic.name] = len(topic.partitions)
        return found

    def brokers(self) -> list[tuple[str, int]]:
        """Return the addresses of all brokers of the cluster.

        Raises:
            ConnectionLost: none can be reached.
        """
        response = self.ask(MetadataRequest(topics=[]), MetadataResponse)
        return [(each.host, each.port) for each in response.brokers]

    def offsets(
        self, times: Mapping[KafkaPartition, int], *, is_committed: bool
    ) -> dict[KafkaPartition, int]:
        """Return the first offset at or behind a time, in each partition; -1 where there is none.

        Args:
            times: milliseconds since 1970, or EARLIEST, or LATEST for the end.
            is_committed: let the end be that of what is committed.

        Raises:
            KafkaFailed: a partition does not exist.
        """
        return self.retried(lambda: self._offsets(times, is_committed=is_committed))

    def _offsets(
        self, times: Mapping[KafkaPartition, int], *, is_committed: bool
    ) -> dict[KafkaPartition, int]:
        found = {}
        for leader, partitions in self._by_leader(times).items():
            topics: dict[str, ListOffsetsTopic] = {}
            for where in partitions:
                topic = topics.setdefault(
                    where.topic, ListOffsetsTopic(name=where.topic, partitions=[])
                )
                topic.partitions.append(
                    ListOffsetsPartition(partition_index=where.partition, timestamp=times[where])
                )
            request = ListOffsetsRequest(
                replica_id=-1, isolation_level=int(is_committed), topics=list(topics.values())
            )
            for answer in self.ask(request, ListOffsetsResponse, leader).topics:
                for each in answer.partitions:
                    where = KafkaPartition(answer.name, each.partition_index)
                    check(f"offsets of {where}", each.error_code)
                    found[where] = each.offset
        return found

    def send_fetch(
        self,
        where: KafkaPartition,
        offset: int,
        *,
        is_committed: bool,
        bytes_max: int = FETCH_BYTES_MAX,
    ) -> None:
        """Ask for records from an offset on; `receive_fetch` takes them.

        Raises:
            ConnectionLost: the leader cannot be reached.
        """
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=int(is_committed),
            topics=[
                FetchTopic(
                    topic=where.topic,
                    partitions=[
                        FetchPartition(
                            partition=where.partition,
                            fetch_offset=offset,
                            partition_max_bytes=bytes_max,
                        )
                    ],
                )
            ],
        )
        self._connected(self.leader(where)).send(request)

    def receive_fetch(self, where: KafkaPartition) -> PartitionData | None:
        """Receive what the last fetch of a partition found.

        Returns:
            None if the broker throttled the fetch instead of reading; the time that it demanded is
            over, so the next fetch may be sent. Source: Kafka's FetchContext.getThrottledResponse.

        Raises:
            KafkaFailed: the offset is out of range, or the partition is not there.
        """
        response = self._connected(self.leader(where)).receive(FetchResponse)
        check(f"fetch of {where}", response.error_code)
        found = next((part for topic in response.responses for part in topic.partitions), None)
        if found is not None:
            check(f"fetch of {where}", found.error_code)
        if found is not None and (found.records or response.throttle_time_ms == 0):
            return found
        self._pause.wait(response.throttle_time_ms / 1000)
        return None

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
            connection = BrokerConnection(*broker, self._tls)
            try:
                if self._login is not None:
                    log_in(connection, self._login)
            except BaseException:
                connection.close()
                raise
            self._connections[broker] = connection
        return connection

    def leader(self, where: KafkaPartition) -> tuple[str, int]:
        """Return the address of the broker that leads a partition.

        Raises:
            KafkaFailed: the partition does not exist, or has no leader now.
        """
        if where not in self._leaders:
            self._topics([where.topic])
        if where not in self._leaders:
            raise KafkaFailed(f"partition {where}", ErrorCode.LEADER_NOT_AVAILABLE)
        return self._leaders[where]

    def _by_leader(
        self, partitions: Iterable[KafkaPartition]
    ) -> dict[tuple[str, int], list[KafkaPartition]]:
        found: dict[tuple[str, int], list[KafkaPartition]] = {}
        for where in partitions:
            found.setdefault(self.leader(where), []).append(where)
        return found


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
            prove who it is.
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
