"""Options plan: which options a named topic may have, and what follows from them. Pure.

Rule: options hold from the first use of a named topic on. A later call may repeat them or leave
them at their defaults; anything else is refused, as other clients rely on them.
Must not know: rows, topics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields

from kledger.named_topics.errors import FunctionNotAllowed, WrongArgument
from kledger.named_topics.model import NO_LIMIT, NamedTopicOptions

CHANNELS_MAX = 10_000
SUBSCRIBER_TIMEOUT_MS_MIN = 1_000
"""A shorter timeout is this long; 0 or less is none, as in Coherence."""
MILLISECONDS_MAX = (1 << 53) - 1
PAGE_BYTES_MAX = 64 << 20
ANONYMOUS_PREFIX = "anonymous-"
"""What the groups of anonymous subscribers are called, before their ids."""
NAME_SIZE_MAX = 255
_RANGES: Mapping[str, tuple[int, int]] = {
    "element_expiry_ms": (1, MILLISECONDS_MAX),
    "subscriber_timeout_ms": (SUBSCRIBER_TIMEOUT_MS_MIN, MILLISECONDS_MAX),
    "page_bytes": (1, PAGE_BYTES_MAX),
    "max_unconsumed_bytes": (1, MILLISECONDS_MAX),
}
_NONE: Mapping[str, int] = {
    "element_expiry_ms": NO_LIMIT,
    "subscriber_timeout_ms": 0,
    "max_unconsumed_bytes": NO_LIMIT,
}
"""The value of an option that stands for none."""


def check_options(options: NamedTopicOptions, channel_count: int) -> None:
    """Check what a client asks for. Raises WrongArgument."""
    if not 0 <= channel_count <= CHANNELS_MAX:
        raise WrongArgument(f"channel_count: expected 1 to {CHANNELS_MAX}, got {channel_count}")
    for name, (low, high) in _RANGES.items():
        given = getattr(options, name)
        if given != _NONE.get(name) and not low <= given <= high:
            raise WrongArgument(f"{name}: expected {low} to {high}, got {given}")


def check_repeated(stored: NamedTopicOptions, given: NamedTopicOptions, *, what: str) -> None:
    """Check the options of a later call. Raises WrongArgument if they change anything."""
    default = NamedTopicOptions()
    for field in fields(NamedTopicOptions):
        expected, found = getattr(stored, field.name), getattr(given, field.name)
        if found not in {expected, getattr(default, field.name)}:
            raise WrongArgument(f"{field.name} of {what}: expected {expected}, got {found}")


def check_stored_functions(group: str, names: Sequence[str], modules: Sequence[str]) -> None:
    """Check the functions that a group has: the server's setting may have changed since.

    Args:
        group: its name.
        names: of its filter and its converter; empty: it has none.
        modules: those that they may be in, or below.

    Raises:
        FunctionNotAllowed: one is in another module.
    """
    for what, name in zip(("filter", "converter"), names, strict=True):
        try:
            check_function(f"{what} of group {group}", name, modules)
        except WrongArgument as error:
            raise FunctionNotAllowed(f"{error}; see native.function_modules") from None


def check_function(what: str, name: str, modules: Sequence[str]) -> None:
    """Check the name of a filter or converter; empty is none.

    Args:
        what: for the error.
        name: `module:attribute`.
        modules: those that it may be in, or below.

    Raises:
        WrongArgument: it is in another module.
    """
    module, _, attribute = name.partition(":")
    allowed = any(module == each or module.startswith(f"{each}.") for each in modules)
    if name and not (attribute and allowed):
        raise WrongArgument(
            f"{what}: expected 'module:attribute' of one of the modules "
            f"{', '.join(modules) or '(none)'}, got {name!r}"
        )


def check_group_name(group: str) -> None:
    """Check the name of a group that is not anonymous. Raises WrongArgument."""
    if not group or len(group.encode()) > NAME_SIZE_MAX or group.startswith(ANONYMOUS_PREFIX):
        raise WrongArgument(
            f"group: expected 1 to {NAME_SIZE_MAX} bytes that do not begin with "
            f"{ANONYMOUS_PREFIX!r}, got {group!r}"
        )


def topic_configs(options: NamedTopicOptions) -> dict[str, str]:
    """Return the settings of a topic that is created for a named topic.

    Elements have the time at which the server accepted them, and stay until their groups have
    committed them, or until they expire.
    """
    return {
        "message.timestamp.type": "LogAppendTime",
        "retention.bytes": "-1",
        "retention.ms": str(options.element_expiry_ms),
    }
