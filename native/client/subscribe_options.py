"""SubscribeOptions: the checked arguments of a subscription, and the checks of all arguments.

Rule: a wrong argument raises InvalidArgument before anything is sent.
Must not know: links.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index

from kledger.native.broker import EARLIEST, LATEST, NUMBER_MAX, SeekTarget
from kledger.native.errors import InvalidArgument
from kledger.native.message_id import MessageId
from kledger.subscriptions.entry_view import KEY_HASH_COUNT
from kledger.subscriptions.model import SubscriptionType

RECEIVER_QUEUE_SIZE_MAX = 500_000


@dataclass(frozen=True, slots=True)
class DeadLetterPolicy:
    """When and where to move messages that are redelivered too often.

    Attributes:
        max_redeliver_count: redeliveries of a message; after them it is moved to the topic.
        topic: the dead-letter topic; None: `<topic>-<subscription>-DLQ`.
    """

    max_redeliver_count: int
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOptions:
    """The options of one consumer; see `Client.subscribe`.

    Attributes:
        start, is_start_inclusive: where a new subscription begins.
        is_reader: received messages are acknowledged automatically.
        reads_compacted: where a topic is compacted, the last message of each key is received.
    """

    subscription: str
    type: SubscriptionType
    start: SeekTarget
    is_start_inclusive: bool = True
    is_durable: bool = True
    is_reader: bool = False
    reads_compacted: bool = False
    name: str
    priority_level: int = 0
    receiver_queue_size: int = 1_000
    unacked_max: int = 50_000
    unacked_subscription_max: int = 200_000
    key_ranges: tuple[tuple[int, int], ...] | None = None
    failover_delay_ms: int = 1_000
    negative_ack_redelivery_delay_ms: int = 60_000
    ack_timeout_ms: int | None = None
    dead_letter: DeadLetterPolicy | None = None

    def __post_init__(self) -> None:
        check_name("subscription", self.subscription)
        check_name("consumer_name", self.name)
        check_number("receiver_queue_size", self.receiver_queue_size, at_least=1)
        if self.receiver_queue_size > RECEIVER_QUEUE_SIZE_MAX:
            raise InvalidArgument(
                f"receiver_queue_size: expected at most {RECEIVER_QUEUE_SIZE_MAX}, "
                f"got {self.receiver_queue_size}"
            )
        check_number("priority_level", self.priority_level)
        check_number("max_unacked", self.unacked_max)
        check_number("max_unacked_subscription", self.unacked_subscription_max)
        check_number("failover_delay_ms", self.failover_delay_ms)
        check_number("negative_ack_redelivery_delay_ms", self.negative_ack_redelivery_delay_ms)
        if self.ack_timeout_ms is not None:
            check_number("ack_timeout_ms", self.ack_timeout_ms, at_least=1)
        if self.dead_letter is not None:
            if not isinstance(self.dead_letter, DeadLetterPolicy):
                raise InvalidArgument(
                    f"dead_letter: expected a DeadLetterPolicy, got {self.dead_letter!r}"
                )
            check_number("max_redeliver_count", self.dead_letter.max_redeliver_count)
            if self.dead_letter.topic is not None:
                check_name("dead_letter.topic", self.dead_letter.topic)
        if self.key_ranges is not None and self.type is not SubscriptionType.KEY_SHARED:
            raise InvalidArgument(f"key_ranges: expected a key_shared consumer, got {self.type}")
        if self.reads_compacted and self.is_shared:
            raise InvalidArgument(
                f"read_compacted: expected an exclusive or failover consumer, got {self.type}"
            )

    @classmethod
    def for_reader(
        cls,
        name: str,
        start: SeekTarget,
        *,
        is_inclusive: bool,
        reads_compacted: bool = False,
        receiver_queue_size: int = 1_000,
    ) -> "SubscribeOptions":
        """Return the options of a reader, whose name no other one has."""
        return cls(
            subscription=name,
            type=SubscriptionType.EXCLUSIVE,
            start=start,
            is_start_inclusive=is_inclusive,
            is_durable=False,
            is_reader=True,
            reads_compacted=reads_compacted,
            name=name,
            receiver_queue_size=receiver_queue_size,
            unacked_max=0,
            unacked_subscription_max=0,
        )

    @property
    def reports_position(self) -> bool:
        """Whether a reader asks how far was read, as not every message at the end is for it."""
        return self.is_reader and self.reads_compacted

    @property
    def is_shared(self) -> bool:
        """Whether messages are delivered, and redelivered, individually."""
        return self.type in {SubscriptionType.SHARED, SubscriptionType.KEY_SHARED}


def type_of(given: str) -> SubscriptionType:
    """Return the type of that name. Raises InvalidArgument."""
    try:
        return SubscriptionType(given)
    except ValueError:
        names = ", ".join(SubscriptionType)
        raise InvalidArgument(f"consumer_type: expected one of {names}, got {given!r}") from None


def start_of(given: str) -> str:
    """Return a checked initial position. Raises InvalidArgument."""
    if given in (EARLIEST, LATEST):
        return given
    raise InvalidArgument(f"initial_position: expected {EARLIEST!r} or {LATEST!r}, got {given!r}")


def target_of(given: MessageId | int | str) -> SeekTarget:
    """Return the target of a seek as a value of `native.broker`. Raises InvalidArgument."""
    if isinstance(given, MessageId):
        given.check()
        return given.record_position
    if given in (EARLIEST, LATEST) or (type(given) is int and 0 <= given <= NUMBER_MAX):
        return given
    raise InvalidArgument(
        f"expected a message id, a time in ms, {EARLIEST!r} or {LATEST!r}, got {given!r}"
    )


def ranges_of(given: Sequence[tuple[int, int]] | None) -> tuple[tuple[int, int], ...] | None:
    """Return sticky ranges of key hash slots, sorted. Raises InvalidArgument."""
    if given is None:
        return None
    try:
        ranges = sorted((index(first), index(last)) for first, last in given)
    except (TypeError, ValueError):
        raise InvalidArgument(f"key_ranges: expected pairs of slots, got {given!r}") from None
    for first, last in ranges:
        if not 0 <= first <= last < KEY_HASH_COUNT:
            raise InvalidArgument(
                f"key_ranges: expected slots from 0 to {KEY_HASH_COUNT - 1}, got {first} to {last}"
            )
    for (_, last), (first, _) in itertools.pairwise(ranges):
        if first <= last:
            raise InvalidArgument(f"key_ranges: slot {first} is in two of them")
    if not ranges:
        raise InvalidArgument("key_ranges: expected at least one range, got none")
    return tuple(ranges)


def check_name(what: str, given: object) -> None:
    """Raise InvalidArgument unless it is text, not empty, and valid UTF-8."""
    if not isinstance(given, str) or not given or not _is_utf8(given):
        raise InvalidArgument(f"{what}: expected a name, got {given!r}")


def check_number(what: str, given: object, *, at_least: int = 0, at_most: int = NUMBER_MAX) -> None:
    """Raise InvalidArgument unless it is a whole number in this range."""
    if type(given) is not int or not at_least <= given <= at_most:
        raise InvalidArgument(
            f"{what}: expected a whole number from {at_least} to {at_most}, got {given!r}"
        )


def check_settings(what: str, given: object) -> dict[str, str]:
    """Return names and values. Raises InvalidArgument unless it maps text to text."""
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"{what}: expected a mapping, got {given!r}")
    for pair in given.items():
        for text in pair:
            if not isinstance(text, str) or not _is_utf8(text):
                raise InvalidArgument(f"{what}: expected text for text, got {pair!r}")
    return dict(given)


def check_policies(given: object) -> dict[str, str | None]:
    """Return policies as texts. Raises InvalidArgument unless it maps text to such or None."""
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"policies: expected a mapping, got {given!r}")
    texts = {name: str(each) if type(each) is int else each for name, each in given.items()}
    check_settings("policies", {name: "" if each is None else each for name, each in texts.items()})
    return texts


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
