"""How a subscriber receives.

Rule: what does not change as long as the subscriber is there.
Must not know: the server, channels.
"""

from dataclasses import dataclass

from kledger.native.client.named_topics.functions import Function, GroupFunction

PREFETCHED_BYTES_MAX = 8 << 20
"""What a subscriber holds of elements that were not received, but for one poll."""
RECONNECT_TIMEOUT_MS = 300_000
"""How long a subscriber tries to join again before its receives fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberOptions:
    """What the application asks for.

    Attributes:
        group: its name; empty: an anonymous subscriber.
        completes_on_empty: a receive on an empty topic ends with nothing, instead of waiting.
        filter: of elements; those for which it returns something false are skipped.
        converter: of values; an element for which it returns None is skipped.
        listeners: called when the ownership of channels changes.
        deserializer: makes a value of the stored bytes.
        prefetched_bytes_max: see PREFETCHED_BYTES_MAX.
        reconnect_timeout_ms: see RECONNECT_TIMEOUT_MS.
    """

    group: str
    completes_on_empty: bool
    filter: GroupFunction
    converter: GroupFunction
    listeners: tuple[object, ...]
    deserializer: Function | None
    prefetched_bytes_max: int = PREFETCHED_BYTES_MAX
    reconnect_timeout_ms: int = RECONNECT_TIMEOUT_MS
