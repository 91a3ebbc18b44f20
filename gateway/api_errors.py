"""Refusals: what is wrong about one of the things that an admin request names.

Rule: one refused thing never affects the others of its request.
Must not know: the messages of the APIs that use it.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from kledger.gateway.error_map import error_code_of
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.topics import Topic, TopicRegistry, TopicsError, UnknownTopic, check_name

T = TypeVar("T")

NO_AUTHORIZER = "No Authorizer is configured: nobody is kept from anything here"
USER, ANONYMOUS = "User", "ANONYMOUS"
"""The principal of everybody who did not authenticate."""


class ApiError(Exception):
    """A request is wrong about one thing; the code is the one to answer for it."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_and_message_of(error: ApiError | TopicsError) -> tuple[ErrorCode, str]:
    """Return the code and message to answer for one thing."""
    code = error.code if isinstance(error, ApiError) else error_code_of(error)
    return code, str(error)


def first_of_each(things: Iterable[T], name_of: Callable[[T], Hashable]) -> list[tuple[T, int]]:
    """Return the first thing of each name, with how often that name stands in the request."""
    found: dict[Hashable, list[T]] = {}
    for thing in things:
        found.setdefault(name_of(thing), []).append(thing)
    return [(same[0], len(same)) for same in found.values()]


def check_not_repeated(count: int, mistake: str) -> None:
    """Refuse a thing that stands more than once in its request.

    Args:
        count: how often it does.
        mistake: what Kafka calls that.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    if count > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{mistake}: expected once in the request, got {count} times"
        )


def find_topic(registry: TopicRegistry, name: str) -> Topic:
    """Return a topic.

    Raises:
        TopicsError: the name is not one, or there is no such topic.
    """
    topic = registry.get(name)
    if topic is None:
        check_name(name)
        raise UnknownTopic(f"The topic {name!r} does not exist.")
    return topic
