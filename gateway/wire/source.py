"""Source of one flat function under construction, with a map from its lines to fields.

The map is what makes a failure cheap: the compiled function checks nothing twice and keeps no
path; when something fails, the number of the failing line says which field it was.

Rule: text in, one compiled function out.
Must not know: which direction the function works in.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from kledger.gateway.wire.schema import Field, Struct, WireType, fields_of


@dataclass(frozen=True, slots=True)
class FieldLocation:
    """A field on the wire: its path, what is expected there and the bytes it takes if fixed."""

    path: str
    expected: str
    size: int = 0


class FunctionSource:
    """Lines of the function, the values they name and the fields they serve."""

    def __init__(self, head: str) -> None:
        self.lines = [head]
        self.names: dict[str, Any] = {}
        self.locations: dict[int, list[FieldLocation]] = {}
        self._depth = 1
        self._counter = 0

    def add(self, line: str, *locations: FieldLocation) -> None:
        """Append one line at the current depth."""
        self.lines.append("    " * self._depth + line)
        if locations:
            self.locations[len(self.lines)] = list(locations)

    @contextmanager
    def block(self, head: str, *locations: FieldLocation) -> Iterator[None]:
        """Append a line that opens a block; what is added inside is indented."""
        self.add(head, *locations)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        """Return a variable name that is not used yet."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def constant(self, prefix: str, value: Any) -> str:
        """Give a value a name that the function can use."""
        for name, known in self.names.items():
            if known is value and name.startswith(prefix):
                return name
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def compile(self, name: str, file_name: str) -> Callable[..., Any]:
        """Compile the lines and return the function called `name`."""
        code = compile("\n".join(self.lines) + "\n", file_name, "exec")
        exec(code, self.names)  # noqa: S102 (made from declarations, never from input)
        return cast(Callable[..., Any], self.names[name])


def fields_in(cls: type[Struct], version: int) -> tuple[list[Field], list[Field], list[Field]]:
    """Split the fields of a struct: plain ones in order, tagged ones by tag, absent ones."""
    present = [one for one in fields_of(cls) if version in one.versions]
    plain = [one for one in present if one.tag is None]
    tagged = sorted((one for one in present if one.tag is not None), key=lambda one: one.tag or 0)
    absent = [one for one in fields_of(cls) if version not in one.versions]
    return plain, tagged, absent


def size_min(wire_type: WireType, version: int, *, is_flexible: bool, is_nullable: bool) -> int:
    """Return the fewest bytes that a value of this type can take; never 0."""
    if wire_type.size:
        return wire_type.size
    if wire_type.struct is not None:
        if is_nullable:
            return 1
        plain, _, _ = fields_in(wire_type.struct, version)
        sizes = (
            size_min(
                one.type, version, is_flexible=is_flexible, is_nullable=version in one.nullable
            )
            for one in plain
        )
        return max(1, sum(sizes) + is_flexible)
    if is_flexible:
        return 1
    return 2 if wire_type.name == "string" else 4


def has_records(cls: type[Struct]) -> bool:
    """Return whether record batches occur anywhere in a class."""
    return any(_holds_records(one.type) for one in fields_of(cls))


def _holds_records(wire_type: WireType) -> bool:
    if wire_type.element is not None:
        return _holds_records(wire_type.element)
    if wire_type.struct is not None:
        return has_records(wire_type.struct)
    return wire_type.name == "records"
