"""Error answer: how an API says one error about everything that was asked.

Rule: pure; works from the declarations of the messages, so that every API in every version is there
without a line of its own. The outermost `error_code` that a response has is set, and what the
request named on the way to it is named again; a response without one above names topics, partitions
or groups as the request did, and each has the error.
Must not know: who refuses, or why.
"""

from collections.abc import Iterable
from typing import Any, Final

from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k01_fetch import FetchRequest
from kledger.gateway.wire.messages.k03_metadata import MetadataRequest
from kledger.gateway.wire.schema import ApiMessage, Field, Struct, fields_of

CODES: Final = {"error_code", "partition_error_code"}
TEXT: Final = "error_message"
EQUIVALENT_FIELDS: Final = (
    {"partition", "partition_id", "partition_index", "index"},
    {"topic", "topic_name", "name"},
    *(
        {each}
        for each in (
            "topic_id",
            "group_id",
            "member_id",
            "transactional_id",
            "producer_id",
            "resource_type",
            "resource_name",
            "entity",
            "entity_type",
            "entity_name",
        )
    ),
)
"""What is named again, and the names that messages have for the same thing."""
NESTED_TOPICS: Final = (FetchRequest, MetadataRequest)
"""Their outermost code is about the session or the cluster; clients look at the inner ones."""


class NoErrorField(Exception):
    """The response to this request has nowhere to say an error."""


def error_response(
    request: ApiMessage, response_class: type[ApiMessage], version: int, error: ErrorCode
) -> ApiMessage:
    """Return the response that answers a request with an error.

    Raises:
        NoErrorField: the response has no place for it, as nothing was named in the request.
    """
    answer = _ErrorResponse(version, error)
    response: ApiMessage = response_class()
    is_said = answer.fill(response, request, is_outermost=isinstance(request, NESTED_TOPICS))
    if not is_said and not answer.set_code(response):
        name = response_class.__name__
        raise NoErrorField(f"{name} v{version} to a request that names nothing has no error")
    return response


class _ErrorResponse:
    def __init__(self, version: int, error: ErrorCode) -> None:
        self._version = version
        self._error = error

    def set_code(self, value: Struct) -> bool:
        """Set the codes of one struct; return whether it has any."""
        codes = [one for one in self._fields(value) if one.name in CODES]
        for one in codes:
            setattr(value, one.name, int(self._error))
        if codes and any(one.name == TEXT for one in self._fields(value)):
            setattr(value, TEXT, self._error.name)
        return bool(codes)

    def fill(self, value: Struct, requested: Struct, *, is_outermost: bool = False) -> bool:
        """Set the error in one struct, or in what is below it; return whether it has a place."""
        self._copy_names(value, requested)
        if not is_outermost and self.set_code(value):
            return True
        is_said = False
        for one in self._fields(value):
            element = one.type.element
            if (
                element is None
                or element.struct is None
                or not self._has_error_field(element.struct)
            ):
                continue
            items = [self._item(element.struct, each) for each in self._requested(one, requested)]
            setattr(value, one.name, items)
            is_said |= bool(items)
        return is_said

    def _item(self, cls: type[Struct], requested: Any) -> Struct:
        """Return what says the error about one thing that was asked."""
        item: Struct = cls()
        if isinstance(requested, Struct):
            self.fill(item, requested)
            return item
        name = next(one.name for one in self._fields(item) if _may_contain(one, requested))
        setattr(item, name, requested)
        self.set_code(item)
        return item

    def _copy_names(self, value: Struct, requested: Struct) -> None:
        """Copy what was named, from whatever it is called there."""
        given = {one.name for one in self._fields(requested)}
        for one in self._fields(value):
            same = next((names & given for names in EQUIVALENT_FIELDS if one.name in names), None)
            if not same:
                continue
            held = getattr(requested, same.pop())
            if isinstance(held, list):
                held = [self._copied(one, each) for each in held]
            if held is not None or self._version in one.nullable:
                setattr(value, one.name, held)

    def _copied(self, one: Field, requested: Struct) -> Struct:
        assert one.type.element is not None
        assert one.type.element.struct is not None
        copy: Struct = one.type.element.struct()
        self._copy_names(copy, requested)
        return copy

    def _requested(self, one: Field, requested: Struct) -> Iterable[Any]:
        """Return what of the request a list of the response is about."""
        lists = [each for each in self._fields(requested) if each.type.element is not None]
        named_alike = [each for each in lists if each.name == one.name]
        for each in named_alike or lists[:1]:
            return getattr(requested, each.name) or ()
        return ()

    def _has_error_field(self, cls: type[Struct]) -> bool:
        """Tell whether a code is anywhere in a struct."""
        for one in fields_of(cls):
            if self._version not in one.versions:
                continue
            inner = one.type.element or one.type
            if one.name in CODES or (
                inner.struct is not None and self._has_error_field(inner.struct)
            ):
                return True
        return False

    def _fields(self, value: Struct) -> list[Field]:
        return [one for one in fields_of(type(value)) if self._version in one.versions]


def _may_contain(one: Field, requested: Any) -> bool:
    """Tell whether a field of a response names something that a request has without a struct."""
    if one.name in CODES or one.name == TEXT:
        return False
    return one.type.name == ("string" if isinstance(requested, str) else "int32")
