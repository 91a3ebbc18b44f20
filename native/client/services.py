"""What the parts of a native client share.

Rule: one per client; time, tasks and chance come from here, and the server is the broker.
Must not know: what is built on it.
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
"""How often producers and consumers look whether their topic has got more partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientServices:
    """The broker, and what everything runs on."""

    broker: Broker
    clock: Clock
    timers: Timers
    supervisor: Supervisor
    entropy: Entropy
    operations: ClientOperations
    decoder: MessageDecoder
    partition_refresh_ms: int = PARTITION_REFRESH_MS
