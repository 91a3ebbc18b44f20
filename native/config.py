"""NativeConfig: the settings of the listener for native clients.

Rule: every limit has a name and a default here.
Must not know: the listener.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeConfig:
    """Settings of the section `native`."""

    tls: bool = False
    """Whether connections are encrypted, with the keys of Kafka's settings `ssl.*`."""
    keepalive_ms: int = 5_000
    """How long a peer may be silent before it is pinged, and how long it may take to answer: an
    unresponsive peer is disconnected after twice this time."""
    max_connections: int = 10_000
    """Connections of all clients at one time; more are refused."""
    streams_max: int = 50_000
    """Producers, consumers and calls of all clients at one time; more are refused."""
    delivery_bytes_max: int = 4 * 1024 * 1024
    """Bytes that may wait for one slow consumer; beyond them the server delivers nothing to it."""
    delivery_bytes_total_max: int = 256 * 1024 * 1024
    """The same for all consumers together. Each may fill an equal part of it, and 64 KiB in any
    case; when it is full, the server delivers one entry at a time to a consumer."""
    produce_bytes_max: int = 16 * 1024 * 1024
    """Bytes of pending batches of one producer; beyond them the server stops reading its stream.
    A batch is pending until its answer is written, so a client that reads no answers is not read
    either."""
    function_modules: tuple[str, ...] = ()
    """The modules whose functions subscriber groups of named topics may name as filter or
    converter, separated by commas; a package includes the modules in it. The server imports them
    in processes of their own."""
    function_timeout_ms: int = 5_000
    """How long these functions may take for the elements of one poll. They then go on one by one;
    an element for which one takes longer is left out, and its receive fails."""
    function_processes_max: int = 4
    """Processes in which these functions run; groups with the same functions share one."""
    acknowledgements_max: int = 100_000
    """Pending acknowledgements of one consumer, likewise."""
