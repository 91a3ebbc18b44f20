"""Variants: a good request, and what becomes of it with one field after the other gone wrong.

Rule: pure; the schema says which fields a version has, of which type, and whether they may be null.
One thing is changed at a time, so that an answer which differs says by itself what it is about.
Must not know: what a field means, servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from compat_tests.differential import words
from kledger.gateway.wire.primitives import ZERO_UUID
from kledger.gateway.wire.schema import ApiMessage, Field, Struct, WireType, fields_of

UNTOUCHED: Final = frozenset({"timeout_ms", "max_wait_ms"})
"""How long a server may take: what comes of that is a race."""
BYTES: Final = (b"", b"\xff")
IDS: Final = (ZERO_UUID, words.UNKNOWN_ID)
T = TypeVar("T", bound=Struct)
Accessor = Callable[[Any], Any]
"""Finds the struct that is changed inside a request."""


class Variant(NamedTuple):
    """One change: what becomes of what, and how to do it to a request like the first."""

    label: str
    change: Callable[[Any], None]


def filled(kind: type[T], version: int, known: Mapping[str, Any]) -> T:
    """Build a request out of what is known by the names of its fields; lists of one element."""
    values: dict[str, Any] = {}
    for one in fields_of(kind):
        inner = one.type.element.struct if one.type.element is not None else None
        if version not in one.versions:
            continue
        if one.name in known:
            values[one.name] = deepcopy(known[one.name])
        elif inner is not None:
            values[one.name] = [filled(inner, version, known)]
    return kind(**values)


def variants(good: ApiMessage, version: int, strangers: Sequence[str]) -> Iterator[Variant]:
    """Give every change of one field that the version can carry; `strangers` names nothing."""
    return _Changes(version, {"string": ("", *strangers), "bytes": BYTES, "uuid": IDS}).of(good)


class _Changes:
    """What may become of values in one version."""

    def __init__(self, version: int, strange: Mapping[str, Sequence[Any]]) -> None:
        self._version = version
        self._strange = strange

    def of(
        self, value: Struct, path: str = "", place: Accessor = lambda request: request
    ) -> Iterator[Variant]:
        for one in fields_of(type(value)):
            if self._version in one.versions and one.name not in UNTOUCHED:
                yield from self._of_field(one, getattr(value, one.name), path, place)

    def _of_field(self, one: Field, value: Any, path: str, place: Accessor) -> Iterator[Variant]:
        name, here = one.name, path + one.name
        for other in self._others(one.type, value):
            yield Variant(f"{here}={other!r}", partial(_set, place, name, other))
        if self._version in one.nullable and value is not None:
            yield Variant(f"{here}=null", partial(_set, place, name, None))
        if not isinstance(value, list) or not value:
            return
        yield Variant(f"{here} twice", partial(_repeat, place, name))
        if isinstance(value[0], Struct):
            yield from self.of(value[0], f"{here}.", lambda root: getattr(place(root), name)[0])
        elif one.type.element is not None:
            for other in self._others(one.type.element, value[0]):
                yield Variant(f"{here}=[{other!r}]", partial(_set, place, name, [other]))

    def _others(self, kind: WireType, value: Any) -> list[Any]:
        """Give values of a type that are worth a try, but for the one that is there."""
        others = self._strange.get(kind.name, ())
        if kind.name == "bool":
            others = (not value,)
        elif kind.name.startswith("int"):
            others = (-2, -1, 0, 1, 7, (1 << 8 * kind.size - 1) - 1)
        elif kind.element is not None and value != []:
            others = ([],)
        return [one for one in others if one != value]


def _set(place: Accessor, name: str, value: Any, request: Any) -> None:
    setattr(place(request), name, deepcopy(value))


def _repeat(place: Accessor, name: str, request: Any) -> None:
    values = getattr(place(request), name)
    values.extend(deepcopy(values))
