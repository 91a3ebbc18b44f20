"""ClientServices: what the producers and consumers of one client share.

Rule: one instance per client; clock, tasks and randomness come from here.
Must not know: producers, consumers.
"""

from dataclasses import dataclass

from kledger.native.broker import Broker
from kledger.native.client.message_decoder import MessageDecoder
from kledger.native.client.operations import ClientOperations
from kledger.runtime.clock import Clock
from kledger.runtime.entropy import Entropy
from kledger.runtime.tasks import Supervisor
from kledger.runtime.timers import Timers

PARTITION_REFRESH_MS = 60_000
"""The interval in which producers and consumers look for new partitions of their topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientServices:
    """The broker, the clock, the tasks and the decoder of one client."""

    broker: Broker
    clock: Clock
    timers: Timers
    supervisor: Supervisor
    entropy: Entropy
    operations: ClientOperations
    decoder: MessageDecoder
    partition_refresh_ms: int = PARTITION_REFRESH_MS
