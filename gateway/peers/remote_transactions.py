"""Remote transactions: asks the coordinators of transactional ids that other brokers coordinate.

Rule: an error that says nothing about the transaction itself becomes COORDINATOR_NOT_AVAILABLE, on
which clients retry.
Must not know: connections, what the answer is for.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kledger.gateway.coordinator.transactions.txn_state import ProducerIdAndEpoch
from kledger.gateway.peers.peer_requests import Inclusion
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.offsets import TopicPartition

if TYPE_CHECKING:
    from kledger.gateway.cluster_brokers import ClusterBrokers
    from kledger.gateway.coordinator.transactions.transaction_coordinator import (
        TransactionCoordinator,
    )
    from kledger.gateway.peers.peers import Peers

UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
_OF_ANOTHER_CAUSE: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the coordinator does not have a new topic yet
    ErrorCode.OPERATION_NOT_ATTEMPTED,  # the same for another partition in the request
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


class RemoteTransactions:
    """The transactional ids of other brokers."""

    def __init__(
        self, transactions: "TransactionCoordinator", brokers: "ClusterBrokers", peers: "Peers"
    ) -> None:
        """Args: transactions: of this broker."""
        self._transactions = transactions
        self._brokers = brokers
        self._peers = peers

    def close(self) -> None:
        """Ask no more; waiting callers get COORDINATOR_NOT_AVAILABLE at once."""
        self._peers.close()

    def includes(self, transactional_id: str) -> bool:
        """Whether another broker coordinates a transactional id."""
        is_here = self._transactions.shards.error(transactional_id) is ErrorCode.NONE
        return not is_here and self._coordinator_id(transactional_id) != self._brokers.broker_id

    async def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        topic_partitions: Collection[TopicPartition],
        *,
        is_added: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Ask whether the open transaction of a producer includes partitions.

        Args:
            transactional_id: which another broker coordinates.
            producer: of the transaction.
            topic_partitions: of OFFSETS_TOPIC, too: they stand for shards of groups.
            is_added: those that it does not include are added (KIP-890).

        Returns:
            NONE for those that it includes, durably, or what is wrong.
        """
        peer = self._peers.peer(self._coordinator_id(transactional_id))
        answers = await peer.inclusions.ask(
            Inclusion(transactional_id, producer, is_added, each) for each in topic_partitions
        )
        return {
            inclusion.topic_partition: UNAVAILABLE if error in _OF_ANOTHER_CAUSE else error
            for inclusion, error in answers.items()
        }

    def _coordinator_id(self, transactional_id: str) -> int:
        return self._brokers.coordinator_id(self._transactions.shards.number_of(transactional_id))
