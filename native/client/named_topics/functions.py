"""Functions of a group: its filter and its converter, as callables or by name.

Rule: a function that is given by name, `module:attribute`, is the group's: the server keeps the
name, and every subscriber of the group loads and applies it. A plain callable is applied by this
subscriber alone. Both run where the subscriber runs, never in the server.
Must not know: elements, the server.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from kledger.native.errors import IllegalArgument

Function = Callable[[Any], Any]


class GroupFunction(NamedTuple):
    """A function as an application gives it: the name for the server, and what is called."""

    name: str
    function: Function | None


def group_function(what: str, given: object) -> GroupFunction:
    """Return the function that a caller names or gives; None is none.

    Raises:
        IllegalArgument: it is neither, or cannot be loaded.
    """
    if given is None:
        return GroupFunction("", None)
    if isinstance(given, str):
        return GroupFunction(given, load_function(what, given))
    if callable(given):
        return GroupFunction("", given)
    raise IllegalArgument(f"{what}: expected a callable or 'module:attribute', got {given!r}")


def load_function(what: str, name: str) -> Function:
    """Load a function by its name.

    Raises:
        IllegalArgument: it cannot be loaded, or is no function.
    """
    module, separator, attribute = name.partition(":")
    if not (module and separator and attribute):
        raise IllegalArgument(f"{what}: expected 'module:attribute', got {name!r}")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise IllegalArgument(f"{what} {name!r} cannot be loaded: {error}") from error
    if not callable(found):
        raise IllegalArgument(f"{what} {name!r}: expected a function, got {found!r}")
    function: Function = found
    return function
