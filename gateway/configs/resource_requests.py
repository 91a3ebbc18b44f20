"""Configuration resources in requests, and the outcome of each.

Rule: a resource is a pair (type, name), its settings are pairs (name, value); a repeated one is
refused, and a refused resource does not affect the others.
Must not know: the messages of the APIs that use it.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeVar

from kledger.gateway.api_errors import ApiError, check_not_repeated, code_and_message_of
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.topics import TopicsError


class ConfigResourceType(IntEnum):
    """Kafka's codes of the resources that have a configuration."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class RequestedResource(Protocol):
    """The fields of a resource that all requests share."""

    resource_type: int
    resource_name: str


class RequestedSetting(Protocol):
    """The fields of a setting that all requests share."""

    name: str
    value: str | None


R = TypeVar("R", bound=RequestedResource)


class AlterResult(NamedTuple):
    """The outcome of one resource; its fields are those of the answers' entries."""

    error_code: ErrorCode
    error_message: str | None
    resource_type: int
    resource_name: str


async def alter_each(
    resources: Sequence[R], alter: Callable[[R], Coroutine[None, None, None]]
) -> list[AlterResult]:
    """Alter resources one by one; refuse repeated ones and those whose change raises."""
    seen = Counter((each.resource_type, each.resource_name) for each in resources)
    outcomes = []
    for resource in resources:
        name = (resource.resource_type, resource.resource_name)
        code: ErrorCode = ErrorCode.NONE
        message: str | None = None
        try:
            check_not_repeated(seen[name], "Each resource must appear at most once")
            await alter(resource)
        except (ApiError, TopicsError) as error:
            code, message = code_and_message_of(error)
        outcomes.append(AlterResult(code, message, *name))
    return outcomes


def check_names_not_repeated(settings: Sequence[RequestedSetting]) -> None:
    """Refuse a configuration with a repeated name.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    for name, count in Counter(setting.name for setting in settings).items():
        if count > 1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Error due to duplicate config keys: {name}, {count} times",
            )


def value_of(setting: RequestedSetting) -> str:
    """Return a value that must not be null.

    Raises:
        ApiError: INVALID_REQUEST if it is null.
    """
    if setting.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {setting.name}")
    return setting.value
