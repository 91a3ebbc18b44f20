"""Names of topics: Kafka's rules, and the longer spellings of Pulsar for the same topic.

Rule: one topic has one name; every spelling resolves to it. Two names that metric systems cannot
distinguish ('.' and '_') do not exist at the same time.
Must not know: which topics exist.
"""

import re

from kledger.topics.errors import InvalidTopicName

NAME_SIZE_MAX = 249
INTERNAL_NAMES = frozenset(
    {"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"}
)
_PREFIXES = ("persistent://public/default/", "public/default/")
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def resolve_name(spelling: str) -> str:
    """Return the name for a spelling; `check_name` checks it."""
    for prefix in _PREFIXES:
        if spelling.startswith(prefix):
            return spelling[len(prefix) :]
    return spelling


def check_name(name: str) -> None:
    """Check a resolved name by Kafka's rules.

    Raises:
        InvalidTopicName: the message names the rule.
    """
    if not name:
        raise InvalidTopicName("Topic name is invalid: the empty string is not allowed")
    if len(name) > NAME_SIZE_MAX:
        raise InvalidTopicName(
            f"Topic name is invalid: the length of {name[:NAME_SIZE_MAX]!r} is {len(name)}, "
            f"longer than the max allowed length {NAME_SIZE_MAX}"
        )
    if name in (".", ".."):
        raise InvalidTopicName(f"Topic name is invalid: {name!r} is not allowed")
    if not _NAME.fullmatch(name):
        raise InvalidTopicName(
            f"Topic name is invalid: {name!r} contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )


def is_internal(name: str) -> bool:
    """Whether the name is internal in Kafka; such a topic can be neither created nor written."""
    return name in INTERNAL_NAMES


def collision_key(name: str) -> str:
    """Names with equal keys collide."""
    return name.replace(".", "_")
