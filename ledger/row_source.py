"""Row source: one function under construction, that writes a kind of row or reads it.

Rule: neighbours of fixed width become one struct; text in, one compiled function out.
Must not know: kinds of rows, versions.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast


class RowSource:
    """Lines of one function, and the values that they name."""

    def __init__(self, names: dict[str, Any], counter: list[int]) -> None:
        self.lines: list[str] = []
        self.names = names
        self._counter = counter
        self._depth = 1

    def add(self, line: str) -> None:
        """Add a line."""
        self.lines.append("    " * self._depth + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line that opens a block; what is added inside is indented."""
        self.add(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, name: str) -> str:
        """Return a variable name that is not used yet."""
        self._counter[0] += 1
        return f"{name}{self._counter[0]}"

    def constant(self, name: str, value: Any) -> str:
        """Give a value a name that the function can use."""
        name = self.fresh(f"_{name}")
        self.names[name] = value
        return name

    def compile(self, head: str) -> Callable[..., Any]:
        """Return the function."""
        code = "\n".join([head, *self.lines])
        exec(compile(code, "<row format>", "exec"), self.names)  # noqa: S102 (declarations only)
        return cast(Callable[..., Any], self.names["function"])


class RowWriter(RowSource):
    """A function that writes: fixed widths wait until something else follows, parts until a loop.

    Attributes:
        is_fixed: nothing but fixed widths was added.
        has_list: the function collects parts in a list, as there was a loop.
    """

    def __init__(self, names: dict[str, Any], counter: list[int]) -> None:
        super().__init__(names, counter)
        self._codes: list[str] = []
        self._values: list[str] = []
        self._parts: list[str] = []
        self.has_list = False

    @property
    def is_fixed(self) -> bool:
        return not self.lines and not self._parts

    def fork(self) -> "RowWriter":
        """Return an empty writer, to see what a field would add."""
        return RowWriter(self.names, self._counter)

    def number(self, code: str, value: str) -> None:
        """Add a value of fixed width."""
        self._codes.append(code)
        self._values.append(value)

    def content(self, value: str) -> None:
        """Add bytes."""
        self._pack()
        self._parts.append(value)

    def run(self) -> tuple[struct.Struct, list[str]]:
        """Return what was added, if it is fixed."""
        return struct.Struct(">" + "".join(self._codes)), self._values

    def end_run(self) -> None:
        """Bring everything that waits into the list of parts."""
        self._pack()
        if not self.has_list and self._depth == 1:
            self.add(f"out = [{', '.join(self._parts)}]")
            self.has_list = True
        elif len(self._parts) == 1:
            self.add(f"out.append({self._parts[0]})")
        elif self._parts:
            self.add(f"out += ({', '.join(self._parts)})")
        self._parts = []

    def end(self, form: str) -> None:
        """Return the row, put into the form of an expression."""
        self._pack()
        if self.has_list:
            self.end_run()
            row = "b''.join(out)"
        elif len(self._parts) == 1:
            (row,) = self._parts
        else:
            row = f"b''.join(({', '.join(self._parts)},))"
        self.add(f"return {form.format(row)}")

    def _pack(self) -> None:
        if self._codes:
            layout, values = self.run()
            form = self.constant("form", layout)
            self._parts.append(f"{form}.pack({', '.join(values)})")
            self._codes, self._values = [], []


class RowReader(RowSource):
    """A function that reads `row` from position `p`: fixed widths are read in one step."""

    def __init__(self, names: dict[str, Any], counter: list[int]) -> None:
        super().__init__(names, counter)
        self._codes: list[str] = []
        self._variables: list[str] = []

    @property
    def is_fixed(self) -> bool:
        return not self.lines

    def fork(self) -> "RowReader":
        """Return an empty reader, to see what a field would add."""
        return RowReader(self.names, self._counter)

    def number(self, code: str) -> str:
        """Add a value of fixed width; return its variable, which is set by the next `end_run`."""
        self._codes.append(code)
        self._variables.append(self.fresh("n"))
        return self._variables[-1]

    def take(self, size: str) -> str:
        """Read so many bytes; return their variable."""
        self.end_run()
        end, data = self.fresh("end"), self.fresh("data")
        self.add(f"{end} = p + {size}")
        self.add(f"{data} = row[p:{end}]")
        self.add(f"p = {end}")
        return data

    def run(self) -> tuple[struct.Struct, str]:
        """Return the fixed widths that wait, and their variables as a target."""
        names = "".join(f"{name}, " for name in self._variables)
        return struct.Struct(">" + "".join(self._codes)), names.rstrip()

    def end_run(self) -> None:
        """Read the fixed widths that wait."""
        if self._codes:
            layout, names = self.run()
            self.add(f"{names} = {self.constant('form', layout)}.unpack_from(row, p)")
            self.add(f"p += {layout.size}")
            self._codes, self._variables = [], []
