"""Kafka client: what a data source asks brokers for.

Rule: each partition is asked for at its leader.
Must not know: Spark, Arrow.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from kledger.broker_client.broker_connections import RETRIES, BrokerConnections, KafkaFailed, check
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
from kledger.gateway.wire.schema import ApiMessage
from kledger.security.client.client_security import INSECURE, ClientSecurity
from kledger.spark.offset_range import KafkaPartition

CLIENT_ID: Final = "kledger-spark"
FETCH_BYTES_MAX: Final = 8 << 20
FETCH_WAIT_MS: Final = 500

R = TypeVar("R", bound=ApiMessage)
T = TypeVar("T")


class KafkaClient(BrokerConnections):
    """Connections that know topics and the leaders of partitions; not for several threads."""

    def __init__(
        self, servers: str, security: ClientSecurity = INSECURE, *, retries: int = RETRIES
    ) -> None:
        """Prepare; see `BrokerConnections`."""
        super().__init__(servers, security, client_id=CLIENT_ID, retries=retries)
        self._leaders: dict[KafkaPartition, tuple[str, int]] = {}

    def close(self) -> None:
        """Close all connections, and forget the leaders."""
        super().close()
        self._leaders.clear()

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
