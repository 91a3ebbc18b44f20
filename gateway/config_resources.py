"""Configuration resources: what a configuration request is about, and what may be done to it.

Rule: a resource is a pair (type, name). Topics and this node can be changed; everything else is
refused with a reason.
Must not know: the messages of the APIs that use it.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeVar

from gateway.context import RequestContext
from gateway.refusals import Refused, find_topic, refusal_of, refuse_repeated
from gateway.wire.error_codes import ErrorCode
from topics import Topic, TopicsError


class ResourceType(IntEnum):
    """Kafka's codes of the things that have a configuration."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(Protocol):
    """What requests have in common."""

    resource_type: int
    resource_name: str


class Setting(Protocol):
    """What the settings in requests have in common."""

    name: str
    value: str | None


R = TypeVar("R", bound=Resource)


class Outcome(NamedTuple):
    """What came of one resource; the fields are those of the answers' entries."""

    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str


async def alter_each(
    resources: Sequence[R], alter: Callable[[R], Coroutine[None, None, None]]
) -> list[Outcome]:
    """Alter resources one by one; one that stands twice is refused, as is one that raises."""
    seen = Counter((each.resource_type, each.resource_name) for each in resources)
    outcomes = []
    for resource in resources:
        name = (resource.resource_type, resource.resource_name)
        code: ErrorCode = ErrorCode.NONE
        message: str | None = None
        try:
            refuse_repeated(seen[name])
            await alter(resource)
        except (Refused, TopicsError) as error:
            code, message = refusal_of(error)
        outcomes.append(Outcome(code, message, *name))
    return outcomes


def find_alterable_topic(context: RequestContext, resource: Resource) -> Topic:
    """Return the topic whose configuration is to be changed.

    Raises:
        Refused: the resource is none that can be changed.
        TopicsError: there is no such topic.
    """
    if resource.resource_type != ResourceType.TOPIC:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"expected a topic (resource type {ResourceType.TOPIC.value}), got type "
            f"{resource.resource_type}: only topics and brokers have settings that can be changed",
        )
    if resource.resource_name == "":
        raise Refused(ErrorCode.INVALID_REQUEST, "there are no settings for all topics at once")
    return find_topic(context, resource.resource_name)


def refuse_repeated_names(settings: Sequence[Setting]) -> None:
    """Refuse a configuration in which one name stands twice.

    Raises:
        Refused: INVALID_REQUEST.
    """
    for name, count in Counter(setting.name for setting in settings).items():
        if count > 1:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name}: expected once, got {count} times")


def value_of(setting: Setting) -> str:
    """Return a value that must not be null.

    Raises:
        Refused: INVALID_REQUEST: it is.
    """
    if setting.value is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{setting.name}: expected a value, got null")
    return setting.value


async def alter_topic(
    context: RequestContext,
    topic: Topic,
    changes: Mapping[str, str | None],
    *,
    replace: bool,
    validate_only: bool,
) -> None:
    """Change settings of a topic, or only check the changes; None takes a setting back.

    Raises:
        TopicsError: a name or value is not allowed, or nothing could be stored.
    """
    registry = context.services.registry
    if validate_only:
        registry.check_changes(topic, changes, replace=replace)
    else:
        await registry.alter_configs(topic.name, changes, replace=replace)
