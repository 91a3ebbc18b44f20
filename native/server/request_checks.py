"""What clients may ask for: names, counts and limits, checked before anything is done with them.

Rule: a client may be a program of anybody. What is refused is refused with InvalidArgument, which
says what was expected; what a room below checks itself is left to it.
Must not know: topics, subscriptions.
"""

from kledger.native.broker import ConsumerRequest
from kledger.native.errors import InvalidArgument
from kledger.native.server.seek_target import check_target

NAME_SIZE_MAX = 255
COUNT_MAX = (1 << 31) - 1
DELAY_MS_MAX = 24 * 3_600_000
KEY_RANGES_MAX = 1_024


def check_name(what: str, name: str) -> None:
    """Check the name of a subscription or a consumer.

    Raises:
        InvalidArgument: it is empty, too long, or nothing that can be shown.
    """
    if not 0 < len(name) <= NAME_SIZE_MAX or not name.isprintable():
        raise InvalidArgument(
            f"{what}: expected 1 to {NAME_SIZE_MAX} printable characters, got {name[:300]!r}"
        )


def check_count(what: str, count: int, low: int = 1, high: int = COUNT_MAX) -> None:
    """Check a number. Raises InvalidArgument."""
    if not low <= count <= high:
        raise InvalidArgument(f"{what}: expected {low} to {high}, got {count}")


def check_request(request: ConsumerRequest) -> None:
    """Check what a client wants to consume. Raises InvalidArgument."""
    check_name("subscription", request.subscription)
    if request.consumer_name:
        check_name("consumer name", request.consumer_name)
    check_target(request.start)
    check_count("priority level", request.priority_level, 0)
    check_count("unacked_max", request.unacked_max, 0)
    check_count("unacked_subscription_max", request.unacked_subscription_max, 0)
    check_count("failover_delay_ms", request.failover_delay_ms, 0, DELAY_MS_MAX)
    check_count("key ranges", len(request.key_ranges or ()), 0, KEY_RANGES_MAX)
