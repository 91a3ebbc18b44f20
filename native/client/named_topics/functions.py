"""Functions of a group: its filter and its converter, as callables or by name.

Rule: a function that is given by name, `module:attribute`, is the group's: the server imports and
applies it. A plain callable is applied by this subscriber alone, where it runs, to what the
functions of the group have left.
Must not know: elements, the server.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from kledger.native.errors import IllegalArgument

Function = Callable[[Any], Any]


class GroupFunction(NamedTuple):
    """A function as an application gives it: a name for the server, or what is called here."""

    name: str
    function: Function | None


def group_function(what: str, given: object) -> GroupFunction:
    """Return the function that a caller names or gives; None is none.

    Raises:
        IllegalArgument: it is neither.
    """
    if given is None:
        return GroupFunction("", None)
    if isinstance(given, str):
        module, _, attribute = given.partition(":")
        if not (module and attribute):
            raise IllegalArgument(f"{what}: expected 'module:attribute', got {given!r}")
        return GroupFunction(given, None)
    if callable(given):
        return GroupFunction("", given)
    raise IllegalArgument(f"{what}: expected a callable or 'module:attribute', got {given!r}")
