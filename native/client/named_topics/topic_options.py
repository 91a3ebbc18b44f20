"""Options of a named topic, from the arguments of a caller.

Rule: None stands for none, and a timeout of 0 or less for never; one that is too short is the
shortest, as in Coherence. The server checks ranges.
Must not know: the server.
"""

from kledger.named_topics.errors import WrongArgument
from kledger.named_topics.model import NO_LIMIT, NamedTopicOptions
from kledger.named_topics.options_plan import SUBSCRIBER_TIMEOUT_MS_MIN, check_options
from kledger.native.errors import IllegalArgument


def named_topic_options(
    *,
    channel_count: int | None,
    retain_values: bool,
    element_expiry_ms: int | None,
    subscriber_timeout_ms: int,
    page_bytes: int,
    max_unconsumed_bytes: int | None,
    allow_unowned_commits: bool,
) -> tuple[int, NamedTopicOptions]:
    """Return the number of channels, 0 for none given, and the options.

    Raises:
        IllegalArgument: an argument is no whole number, or out of range.
    """
    numbers: dict[str, object] = {
        "channel_count": channel_count,
        "element_expiry_ms": element_expiry_ms,
        "subscriber_timeout_ms": subscriber_timeout_ms,
        "page_bytes": page_bytes,
        "max_unconsumed_bytes": max_unconsumed_bytes,
    }
    for name, given in numbers.items():
        if given is None and name not in {"page_bytes", "subscriber_timeout_ms"}:
            continue
        if not isinstance(given, int) or isinstance(given, bool):
            raise IllegalArgument(f"{name}: expected a whole number, got {given!r}")
        if name != "subscriber_timeout_ms" and given < 1:
            raise IllegalArgument(f"{name}: expected at least 1, got {given}")
    timeout_ms = 0
    if subscriber_timeout_ms > 0:
        timeout_ms = max(subscriber_timeout_ms, SUBSCRIBER_TIMEOUT_MS_MIN)
    options = NamedTopicOptions(
        retain_values=bool(retain_values),
        element_expiry_ms=NO_LIMIT if element_expiry_ms is None else element_expiry_ms,
        subscriber_timeout_ms=timeout_ms,
        page_bytes=page_bytes,
        max_unconsumed_bytes=NO_LIMIT if max_unconsumed_bytes is None else max_unconsumed_bytes,
        allow_unowned_commits=bool(allow_unowned_commits),
    )
    try:
        check_options(options, channel_count or 0)
    except WrongArgument as error:
        raise IllegalArgument(str(error)) from None
    return channel_count or 0, options
