"""NativeConfig: what the listener for native clients can be told.

Rule: a limit has a name and a default here; the section is called `native`.
Must not know: who serves, or what is served.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeConfig:
    """Settings of the section `native`."""

    keepalive_ms: int = 5_000
    """How long a silent peer is left alone, and how long it may then take to answer a ping: who
    does not is gone after twice this time."""
    max_connections: int = 10_000
    """Connections of all clients at one time; more are refused."""
    streams_max: int = 50_000
    """Producers, consumers and calls of all clients at one time; more are refused."""
    delivery_bytes_max: int = 4 * 1024 * 1024
    """What waits for one consumer that reads slowly, beyond which it is handed nothing more."""
    delivery_bytes_total_max: int = 256 * 1024 * 1024
    """The same for all consumers together. Each may fill an equal part of it, and 64 KiB in any
    case; when all of it is full, a consumer is handed one entry at a time."""
    produce_bytes_max: int = 16 * 1024 * 1024
    """What one producer may have in work, beyond which its stream is not read. What was asked for
    is in work until its answer is on its way: who reads no answers is not read, either."""
    acknowledgements_max: int = 100_000
    """How many acknowledgements one consumer may have in work, likewise."""
