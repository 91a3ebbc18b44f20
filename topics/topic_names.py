"""Names of topics and namespaces: Kafka's rules, and the longer spellings of Pulsar.

Rule: one topic has one name; every spelling resolves to it. A topic of `public/default` is called
`topic`, as in Kafka; one of another namespace `tenant/namespace/topic`. A namespace has one slash.
Each part follows Kafka's rules for the name of a topic. Two names that metric systems cannot
distinguish ('.' and '_') do not exist in one namespace at the same time.
Must not know: which topics and namespaces exist.
"""

import re

from kledger.topics.errors import InvalidNamespaceName, InvalidTopicName

NAME_SIZE_MAX = 249
"""Characters of a tenant, a namespace or a topic; a name of all three has two slashes more."""
DEFAULT_NAMESPACE = "public/default"
"""The namespace of every name without a slash; it always exists."""
INTERNAL_NAMES = frozenset(
    {"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"}
)
_SCHEME = "persistent://"
_SHOWN_MAX = 3 * NAME_SIZE_MAX + 2
"""Characters of a bad name that an error shows."""
_PART = re.compile(r"[a-zA-Z0-9._-]+")


def resolve_name(spelling: str) -> str:
    """Return the name for a spelling; `check_name` checks it."""
    name = spelling.removeprefix(_SCHEME)
    namespace, _, topic = name.rpartition("/")
    if namespace == DEFAULT_NAMESPACE:
        return topic
    # Pulsar's scheme stands only before all three parts.
    return name if namespace.count("/") == 1 else spelling


def namespace_of(name: str) -> str:
    """Return the namespace of a topic, from its resolved name."""
    return name.rpartition("/")[0] or DEFAULT_NAMESPACE


def is_namespace(name: str) -> bool:
    """Whether a name has the form of a namespace's, one slash; `check_namespace` checks it."""
    return name.count("/") == 1


def check_name(name: str) -> None:
    """Check a resolved name of a topic.

    Raises:
        InvalidTopicName: the message names the rule.
    """
    slashes = name.count("/")
    if slashes not in (0, 2):
        raise InvalidTopicName(
            f"Topic name is invalid: {name[:_SHOWN_MAX]!r} has the wrong number of slashes,"
            f" expected topic, tenant/namespace/topic or {_SCHEME}tenant/namespace/topic"
        )
    if mistake := _mistake(name):
        raise InvalidTopicName(f"Topic name is invalid: {mistake}")


def check_namespace(name: str) -> None:
    """Check the name of a namespace.

    Raises:
        InvalidNamespaceName: the message names the rule.
    """
    if not is_namespace(name):
        raise InvalidNamespaceName(
            f"Namespace name is invalid: expected tenant/namespace, got {name[:_SHOWN_MAX]!r}"
        )
    if mistake := _mistake(name):
        raise InvalidNamespaceName(f"Namespace name is invalid: {mistake}")


def is_internal(name: str) -> bool:
    """Whether the name is internal in Kafka; such a topic can be neither created nor written."""
    return name in INTERNAL_NAMES


def collision_key(name: str) -> str:
    """Names with equal keys collide."""
    namespace, slash, topic = name.rpartition("/")
    return namespace + slash + topic.replace(".", "_")


def _mistake(name: str) -> str | None:
    """Return what is wrong with one of the parts of a name, in Kafka's words."""
    for part in name.split("/"):
        where = f" in {name[:_SHOWN_MAX]!r}" if part != name else ""
        if not part:
            return f"the empty string is not allowed{where}"
        if len(part) > NAME_SIZE_MAX:
            return (
                f"the length of {part[:NAME_SIZE_MAX]!r} is {len(part)}, "
                f"longer than the max allowed length {NAME_SIZE_MAX}"
            )
        if part in (".", ".."):
            return f"{part!r} is not allowed{where}"
        if not _PART.fullmatch(part):
            return (
                f"{part!r} contains one or more characters other than ASCII alphanumerics, "
                f"'.', '_' and '-'{where}"
            )
    return None
