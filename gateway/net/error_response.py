"""Error responses: one error for everything that a request names, in any API and version.

Rule: pure; works from the declarations of the messages, so no API needs a line of its own. The
outermost `error_code` of a response is set, and the names on the way to it are copied from the
request. In a response without an outer one, each topic, partition or group that the request names
gets the error.
Must not know: why a request fails.
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
    {"user", "name"},
)
"""Fields that are copied, and the names that messages have for the same field."""
JOINED_LISTS: Final = {"deletions", "upsertions"}
"""Lists of a request that one list of its response answers."""
NESTED_TOPICS: Final = (FetchRequest, MetadataRequest)
"""Their outermost code is about the session or the cluster; clients act on the inner ones."""


class NoErrorField(Exception):
    """The response to this request has no field for an error."""


def error_response(
    request: ApiMessage,
    response_class: type[ApiMessage],
    version: int,
    error: ErrorCode,
    *,
    is_repeated: bool = False,
) -> ApiMessage:
    """Return the response that answers a request with an error.

    Args:
        request: is answered.
        response_class: of the response.
        version: of both.
        error: of everything that the request names.
        is_repeated: it is set for each thing, too, where there is an outermost one.

    Raises:
        NoErrorField: the response has no field for it, as the request names nothing.
    """
    answer = _ErrorResponse(version, error, is_repeated=is_repeated)
    response: ApiMessage = response_class()
    is_set = answer.fill(response, request, is_outermost=isinstance(request, NESTED_TOPICS))
    if not is_set and not answer.set_code(response):
        name = response_class.__name__
        raise NoErrorField(f"{name} v{version} to a request that names nothing has no error")
    return response


class _ErrorResponse:
    def __init__(self, version: int, error: ErrorCode, *, is_repeated: bool) -> None:
        self._version = version
        self._is_repeated = is_repeated
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
        """Set the error in a struct or in the structs below it; return whether any has a code."""
        self._copy_names(value, requested)
        is_set = not is_outermost and self.set_code(value)
        if is_set and not self._is_repeated:
            return True
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
            is_set |= bool(items)
        return is_set

    def _item(self, cls: type[Struct], requested: Any) -> Struct:
        """Return the struct with the error of one thing that the request names."""
        item: Struct = cls()
        if isinstance(requested, Struct):
            self.fill(item, requested)
            return item
        name = next(one.name for one in self._fields(item) if _may_contain(one, requested))
        setattr(item, name, requested)
        self.set_code(item)
        return item

    def _copy_names(self, value: Struct, requested: Struct) -> None:
        """Copy the names of a request, under whichever name it has for them."""
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
        """Return the list of the request that a list of the response answers."""
        lists = [each for each in self._fields(requested) if each.type.element is not None]
        named_alike = [each for each in lists if each.name == one.name]
        joined = [each for each in lists if each.name in JOINED_LISTS]
        for each in named_alike or joined or lists[:1]:
            yield from getattr(requested, each.name) or ()

    def _has_error_field(self, cls: type[Struct]) -> bool:
        """Return whether a struct, or a struct below it, has a code."""
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
    """Return whether a field can hold a name that the request has outside of any struct."""
    if one.name in CODES or one.name == TEXT:
        return False
    return one.type.name == ("string" if isinstance(requested, str) else "int32")
