"""What the parts of a native client share.

Rule: one per client; time, tasks and chance come from here, and the server is the broker.
Must not know: what is built on it.
"""

from dataclasses import dataclass

from native.message_decoder import MessageDecoder
from native.operations import Operations
from native.seam import Broker
from runtime.clock import Clock
from runtime.entropy import Entropy
from runtime.tasks import Supervisor
from runtime.timers import Timers

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
    operations: Operations
    decoder: MessageDecoder
    partition_refresh_ms: int = PARTITION_REFRESH_MS
