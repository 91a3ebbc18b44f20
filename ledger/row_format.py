"""Row format: how stored rows and their keys are written as bytes, declared once per kind.

A kind of row is a declaration. Its functions are compiled when they are first used, so that a row
costs as much as one written by hand; neighbours of fixed width are one struct.

    TOTALS = RowFormat("total", {1: RowLayout(Total, count=U32, name=TEXT16)}, given=("day",))
    row = TOTALS.encode(Total(day=4, count=2, name="x"))
    total = TOTALS.decode(row, 4)

Rule: a row begins with the version of its layout (one byte). Every declared version is read, the
newest is written. Integers are big-endian. What cannot be read is an UnreadableRow, which says
which row it is, what was expected and what was found; a layout never changes, a change is a new
version.
Must not know: what rows mean, where and when they are stored.

| field             | bytes                                                             |
|-------------------|-------------------------------------------------------------------|
| U8 ... I64, FLAG  | the integer; FLAG: one byte, 0 or 1                               |
| UUID16            | the 16 bytes                                                      |
| TEXT16, TEXT32    | length (u16, u32), UTF-8                                          |
| BYTES32           | length (u32), content                                             |
| NULLABLE_TEXT32   | length (i32, -1 = None), UTF-8                                    |
| TEXT_REST         | UTF-8 up to the end                                               |
| json_rest(...)    | JSON up to the end                                                |
| array(of)         | count (u32), the elements                                         |
| mapping(key, value) | count (u32), key and value of each item                         |
| optional(layout)  | the layout, or -1 in place of its first integer for None          |
| RowLayout(...)       | its fields, one after the other                                   |
"""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import Any, Final, Generic, Protocol, TypeVar
from uuid import UUID

from crc32c import crc32c

from kledger.ledger.errors import UnreadableRow
from kledger.ledger.row_source import RowReader, RowWriter

T = TypeVar("T")
Pause = Callable[[], None]

_GUARD = struct.Struct(">BI")
_UNREADABLE = (struct.error, ValueError, LookupError, TypeError, AttributeError)


class RowField(Protocol):
    """A part of a row: it adds itself to the functions that write and read the row."""

    def write(self, source: RowWriter, value: str) -> None:
        """Add what writes the value that the expression `value` gives."""
        ...

    def read(self, source: RowReader) -> str:
        """Add what reads a value; return the expression that gives it."""
        ...


class RowFormat(Generic[T]):
    """The bytes of one kind of row."""

    def __init__(
        self,
        name: str,
        versions: Mapping[int, RowField],
        *,
        given: Sequence[str] = (),
        arguments: Sequence[str] = (),
        has_checksum: bool = False,
    ) -> None:
        """Declare the kind.

        Args:
            name: of the kind, for errors.
            versions: layouts by their version; the last one is written. `NO_VERSION` stands for
                rows that begin without one, and has no other beside it.
            given: attributes of the record that are not in the row but in its key; `decode` gets
                their values in this order.
            arguments: what the row has and the record has not; `encode` gets the values in this
                order.
            has_checksum: the CRC-32C of what follows stands behind the version.
        """
        self.name = name
        self.versions = tuple(versions)
        self._has_version = NO_VERSION not in versions
        self._read = _Readers(versions, given, has_checksum=has_checksum)
        newest = self.versions[-1]
        self._compile = partial(
            _compile_write, versions[newest], arguments, newest, has_checksum=has_checksum
        )
        self.encode: Callable[..., bytes] = self._encode_first
        """Returns the row of a record, from the record, the arguments, and maybe `pause`, which is
        called between the elements of a paced mapping."""

    def _encode_first(self, *values: object, **options: object) -> bytes:
        if self.encode == self._encode_first:
            self.encode = self._compile()
        return self.encode(*values, **options)

    def decode(self, row: bytes, *given: object, which: object = None) -> T:
        """Return the record in a row.

        Args:
            row: as `encode` of this or of an older program returned it.
            given: what the key says of the record.
            which: names the row in an error, where `given` does not.

        Raises:
            UnreadableRow: the version is not known, or the row is not whole.
        """
        try:
            record: T = self._read[row[0]](row, *given)
        except _UNREADABLE as error:
            reason = _reason(error, row)
            if self._has_version and (not row or row[0] not in self.versions):
                expected = " or ".join(map(str, self.versions))
                reason = f"expected version {expected}, got {row[0] if row else 'an empty row'}"
            raise self._unreadable(given, which, reason) from None
        return record

    def _unreadable(self, given: Sequence[object], which: object, reason: str) -> UnreadableRow:
        named = given if which is None else (which,)
        label = "".join(f" {each!r}" for each in named)
        return UnreadableRow(f"{self.name} row{label}: {reason}")


NO_VERSION: Final = -1


class _Readers(dict[int, Callable[..., Any]]):
    """The functions that read each version; that of `NO_VERSION` reads whatever comes."""

    def __init__(
        self, versions: Mapping[int, RowField], given: Sequence[str], *, has_checksum: bool
    ) -> None:
        super().__init__()
        self._versions = versions
        self._given = given
        self._has_checksum = has_checksum

    def __missing__(self, version: int) -> Callable[..., Any]:
        known = NO_VERSION if NO_VERSION in self._versions else version
        if known in self:
            return self[known]
        read = self[known] = _compile_read(
            self._versions[known], self._given, known, has_checksum=self._has_checksum
        )
        return read


class RowKey:
    """The keys of one kind of row: a prefix, and what distinguishes its rows."""

    def __init__(self, name: str, prefix: bytes, /, **fields: RowField) -> None:
        self.name = name
        self.prefix = prefix
        self._fields = fields
        self.encode: Callable[..., bytes] = self._encode_first
        """Returns the key with these values, in the order of the fields."""
        self._read: Callable[[bytes], tuple[Any, ...]] = self._read_first

    def _layout(self) -> "RowLayout":
        return RowLayout(None, **{"prefix": literal(self.prefix), **self._fields})

    def _encode_first(self, *values: object) -> bytes:
        if self.encode == self._encode_first:
            names = [name for name, field in self._fields.items() if not _is_literal(field)]
            self.encode = _compile_key(self._layout(), names)
        return self.encode(*values)

    def _read_first(self, key: bytes) -> tuple[Any, ...]:
        self._read = _compile_read(self._layout(), (), NO_VERSION, has_checksum=False)
        values: tuple[Any, ...] = self._read(key)
        return values

    def decode(self, key: bytes) -> tuple[Any, ...]:
        """Return the values in a key.

        Raises:
            UnreadableRow: it is no such key.
        """
        try:
            values = self._read(key)
        except _UNREADABLE as error:
            reason = _reason(error, key)
            raise UnreadableRow(f"key {key!r} of a {self.name} row: {reason}") from None
        return values


class RowLayout:
    """Fields one after the other, which together are one value."""

    has_counts_first = False

    def __init__(self, make: Callable[..., Any] | None, /, **fields: RowField) -> None:
        """Declare the fields by name, in the order of their bytes.

        Args:
            make: returns the value; gets the fields by name. None: the value is their tuple.
            fields: names are those of attributes of the value, too.
        """
        self.make = make
        self.fields = fields

    def with_counts_first(self) -> "RowLayout":
        """Let the counts of all arrays stand before the first of them; return the layout."""
        self.has_counts_first = True
        return self

    def write(self, source: RowWriter, value: str) -> None:
        """Add what writes every field."""
        values = {name: f"{value}.{name}" for name in self.fields}
        if self.make is None:
            values = {name: source.fresh(name) for name in self.fields}
            source.add(f"{', '.join(values.values())}, = {value}")
        self.write_fields(source, values)

    def write_fields(self, source: RowWriter, values: Mapping[str, str]) -> None:
        """Add what writes every field, with the expressions of their values."""
        items: dict[str, str] = {}
        for name, field in self.fields.items():
            if not (self.has_counts_first and isinstance(field, _Array)):
                field.write(source, values[name])
                continue
            items = items or {
                each: a.write_count(source, values[each]) for each, a in self._arrays()
            }
            field.write_items(source, items[name])

    def read(self, source: RowReader) -> str:
        """Add what reads every field."""
        return self.read_with(source, {})

    def read_with(self, source: RowReader, given: Mapping[str, str]) -> str:
        """Add what reads the fields that are not given; return the expression of the value."""
        values, counts = dict(given), dict[str, str]()
        for name, field in self.fields.items():
            if self.has_counts_first and isinstance(field, _Array):
                counts = counts or {each: a.read_count(source) for each, a in self._arrays()}
                values[name] = field.read_items(source, counts[name])
            elif name not in given:
                values[name] = field.read(source)
        if self.make is None:
            named = (values[name] for name in values if not _is_literal(self.fields.get(name)))
            return f"({', '.join(named)},)"
        names = getattr(self.make, "_fields", ())
        if set(names) == set(values):  # a named tuple takes them by position sooner
            arguments = ", ".join(values[name] for name in names)
        else:
            arguments = ", ".join(f"{name}={value}" for name, value in values.items())
        return f"{source.constant('make', self.make)}({arguments})"

    def _arrays(self) -> list[tuple[str, "_Array"]]:
        return [(name, field) for name, field in self.fields.items() if isinstance(field, _Array)]


class _Number:
    """An integer, or bytes, of fixed width."""

    def __init__(self, code: str, write: str = "{}", read: str = "{}") -> None:
        self.code = code
        self._write_form = write
        self._read_form = read

    def write(self, source: RowWriter, value: str) -> None:
        source.number(self.code, self._write_form.format(value))

    def read(self, source: RowReader) -> str:
        return self._read_form.format(source.number(self.code))


class _Sized:
    """Text or bytes behind their length."""

    def __init__(self, length: str, *, is_text: bool, is_nullable: bool = False) -> None:
        self._length = length
        self._is_text = is_text
        self._is_nullable = is_nullable

    def write(self, source: RowWriter, value: str) -> None:
        data, encoded = source.fresh("data"), ".encode()" if self._is_text else ""
        if not self._is_nullable:
            source.add(f"{data} = {value}{encoded}")
            source.number(self._length, f"len({data})")
        else:
            source.add(f"{data} = {value}")
            length = source.fresh("length")
            with source.block(f"if {data} is None:"):
                source.add(f"{length}, {data} = -1, b''")
            with source.block("else:"):
                source.add(f"{data} = {data}{encoded}")
                source.add(f"{length} = len({data})")
            source.number(self._length, length)
        source.content(data)

    def read(self, source: RowReader) -> str:
        length, decoded = source.number(self._length), ".decode()" if self._is_text else ""
        if not self._is_nullable:
            return f"{source.take(length)}{decoded}"
        data = source.take(f"({length} if {length} > 0 else 0)")
        return f"(None if {length} < 0 else {data}{decoded})"


class _Rest:
    """Everything up to the end of the row."""

    def __init__(self, write: Callable[[Any], bytes], read: Callable[[bytes], Any]) -> None:
        self._write_value = write
        self._read_value = read

    def write(self, source: RowWriter, value: str) -> None:
        source.content(f"{source.constant('write', self._write_value)}({value})")

    def read(self, source: RowReader) -> str:
        data = source.take("len(row) - p")
        return f"{source.constant('read', self._read_value)}({data})"


class _Literal:
    """Bytes that are always the same."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def write(self, source: RowWriter, value: str) -> None:
        source.content(repr(self._content))

    def read(self, source: RowReader) -> str:
        data = source.take(str(len(self._content)))
        source.add(f"if {data} != {self._content!r}: raise ValueError('another prefix')")
        return "None"


def _is_literal(field: RowField | None) -> bool:
    return isinstance(field, _Literal)


class _Array:
    """Elements behind their number."""

    def __init__(
        self,
        of: RowField,
        *,
        count: "_Number",
        make: Callable[..., Any],
        order: Callable[..., Any] | None,
        paced: int,
    ) -> None:
        self._of = of
        self._count = count
        self._make = make
        self._order = order
        self._paced = paced

    def write(self, source: RowWriter, value: str) -> None:
        self.write_items(source, self.write_count(source, value))

    def write_count(self, source: RowWriter, value: str) -> str:
        """Add what writes the number of elements; return the variable that holds them."""
        items = source.fresh("items")
        ordered = value if self._order is None else f"{source.constant('o', self._order)}({value})"
        source.add(f"{items} = {ordered}")
        self._count.write(source, f"len({items})")
        return items

    def write_items(self, source: RowWriter, items: str) -> None:
        """Add what writes the elements."""
        item = source.fresh("item")
        packed = self._packed(source, item, items)
        if packed is not None and not source.has_list:
            source.content(f"b''.join({packed})")
            return
        if packed is not None:
            source.end_run()
            source.add(f"out.extend({packed})")
            return
        source.end_run()
        head = f"for {item} in {items}:"
        if self._paced:
            index = source.fresh("index")
            head = f"for {index}, {item} in enumerate({items}, 1):"
        with source.block(head):
            if self._paced:
                source.add(f"if not {index} % {self._paced}: pause()")
            self._of.write(source, item)
            source.end_run()

    def read(self, source: RowReader) -> str:
        return self.read_items(source, self.read_count(source))

    def read_count(self, source: RowReader) -> str:
        """Add what reads the number of elements; return its expression."""
        return self._count.read(source)

    def read_items(self, source: RowReader, count: str) -> str:
        """Add what reads the elements; return the expression of the value."""
        make = source.constant("make", self._make)
        fixed = source.fork()
        item = self._of.read(fixed)
        if fixed.is_fixed:
            layout, names = fixed.run()
            form = source.constant("form", layout)
            data = source.take(f"{count} * {layout.size}")
            from_row = getattr(getattr(self._of, "make", None), "_make", None)
            if from_row is not None and item.endswith(f"({names.rstrip(',')})"):
                made = source.constant("made", from_row)
                return f"{make}(map({made}, {form}.iter_unpack({data})))"
            return f"{make}([{item} for {names} in {form}.iter_unpack({data})])"
        source.end_run()
        items = source.fresh("items")
        source.add(f"{items} = []")
        with source.block(f"for _ in range({count}):"):
            item = self._of.read(source)
            source.end_run()
            source.add(f"{items}.append({item})")
        return f"{make}({items})"

    def _packed(self, source: RowWriter, item: str, items: str) -> str | None:
        """Return the expression that packs all elements, None if their width is not fixed."""
        fixed = source.fork()
        self._of.write(fixed, item)
        if not fixed.is_fixed:
            return None
        layout, values = fixed.run()
        form = source.constant("form", layout)
        named = getattr(getattr(self._of, "make", None), "_fields", ())
        if [f"{item}.{name}" for name in named] == values:
            return f"starmap({form}.pack, {items})"
        return f"[{form}.pack({', '.join(values)}) for {item} in {items}]"


class _Mapping(_Array):
    """Items of a mapping behind their number."""

    def __init__(self, key: RowField, value: RowField, *, paced: int) -> None:
        of = RowLayout(None, key=key, value=value)
        super().__init__(of, count=U32, make=dict, order=None, paced=paced)

    def write_count(self, source: RowWriter, value: str) -> str:
        return super().write_count(source, f"{value}.items()")


class _Converted:
    """Another field, with functions that make its value from ours and ours from its."""

    def __init__(
        self, field: RowField, write: Callable[[Any], Any], read: Callable[[Any], Any]
    ) -> None:
        self._field = field
        self._write_value = write
        self._read_value = read

    def write(self, source: RowWriter, value: str) -> None:
        stored = f"{source.constant('write', self._write_value)}({value})"
        if isinstance(self._field, RowLayout):
            item = source.fresh("item")
            source.add(f"{item} = {stored}")
            stored = item
        self._field.write(source, stored)

    def read(self, source: RowReader) -> str:
        return f"{source.constant('read', self._read_value)}({self._field.read(source)})"


class _Optional:
    """A layout whose first integer is never negative; -1 alone stands for None."""

    def __init__(self, layout: RowLayout) -> None:
        self._layout = layout
        (self._name, first), *_ = layout.fields.items()
        assert isinstance(first, _Number), f"{self._name} is no integer"
        self._first = first

    def write(self, source: RowWriter, value: str) -> None:
        item = source.fresh("item")
        source.end_run()
        source.add(f"{item} = {value}")
        with source.block(f"if {item} is None:"):
            self._first.write(source, "-1")
            source.end_run()
        with source.block("else:"):
            self._layout.write(source, item)
            source.end_run()

    def read(self, source: RowReader) -> str:
        first, found = self._first.read(source), source.fresh("found")
        source.end_run()
        with source.block(f"if {first} < 0:"):
            source.add(f"{found} = None")
        with source.block("else:"):
            value = self._layout.read_with(source, {self._name: first})
            source.end_run()
            source.add(f"{found} = {value}")
        return found


U8: Final = _Number("B")
U16: Final = _Number("H")
U32: Final = _Number("I")
U64: Final = _Number("Q")
I16: Final = _Number("h")
I32: Final = _Number("i")
I64: Final = _Number("q")
FLAG: Final = _Number("B", "1 if {} else 0", "bool({} & 1)")
UUID16: Final = _Number("16s", "{}.bytes", "UUID(bytes={})")
TEXT16: Final = _Sized("H", is_text=True)
TEXT32: Final = _Sized("I", is_text=True)
BYTES32: Final = _Sized("I", is_text=False)
NULLABLE_TEXT32: Final = _Sized("i", is_text=True, is_nullable=True)
TEXT_REST: Final = _Rest(str.encode, bytes.decode)


def json_rest(*, separators: tuple[str, str] | None = None, sort_keys: bool = False) -> RowField:
    """Return a field of JSON; the arguments are those of `json.dumps`."""
    decoder = json.JSONDecoder()
    encoder = json.JSONEncoder(separators=separators, sort_keys=sort_keys, check_circular=False)

    def write(value: Any) -> bytes:
        return encoder.encode(value).encode()

    def read(content: bytes) -> Any:
        return decoder.decode(content.decode())

    return _Rest(write, read)


def array(
    of: RowField,
    *,
    count: _Number = U32,
    make: Callable[..., Any] = tuple,
    order: Callable[..., Any] | None = None,
) -> RowField:
    """Return a field of elements.

    Args:
        of: one element.
        count: how their number is written.
        make: returns the value, of the list of elements.
        order: returns the elements of a value as they are written; the value's own order if None.
    """
    return _Array(of, count=count, make=make, order=order, paced=0)


def mapping(key: RowField, value: RowField, *, paced: int = 0) -> RowField:
    """Return a field of a dictionary.

    Args:
        key: of an item.
        value: of an item.
        paced: while the row is written, a pause comes before every so many of them; 0: none.
    """
    return _Mapping(key, value, paced=paced)


def optional(layout: RowLayout) -> RowField:
    """Return a field that is the layout or None; its first field is an integer, not negative."""
    return _Optional(layout)


def converted(field: RowField, write: Callable[[Any], Any], read: Callable[[Any], Any]) -> RowField:
    """Return a field whose values are made by `write` for the bytes, and by `read` from them."""
    return _Converted(field, write, read)


def literal(content: bytes) -> RowField:
    """Return a field of bytes that are always the same; its value is None."""
    return _Literal(content)


def _no_pause() -> None:
    """Go on at once."""


def _reason(error: Exception, row: bytes) -> str:
    if isinstance(error, struct.error):
        return f"expected more, got {len(row)} bytes"
    return str(error) if isinstance(error, ValueError) else repr(error)


def _compile_write(
    layout: RowField, arguments: Sequence[str], version: int, *, has_checksum: bool
) -> Callable[..., bytes]:
    source = RowWriter(_names(), [0])
    if version != NO_VERSION and not has_checksum:
        source.number("B", str(version))
    if isinstance(layout, RowLayout):
        values = {name: f"record.{name}" for name in layout.fields}
        layout.write_fields(source, {**values, **{name: name for name in arguments}})
    else:
        layout.write(source, "record")
    source.end(f"_guarded({{}}, {version})" if has_checksum else "{}")
    parameters = ", ".join(("record", *arguments, "pause=_no_pause"))
    return source.compile(f"def function({parameters}):")


def _compile_key(layout: RowLayout, names: Sequence[str]) -> Callable[..., bytes]:
    source = RowWriter(_names(), [0])
    layout.write_fields(source, {name: name for name in layout.fields})
    source.end("{}")
    return source.compile(f"def function({', '.join(names)}):")


def _compile_read(
    layout: RowField, given: Sequence[str], version: int, *, has_checksum: bool
) -> Callable[..., Any]:
    source = RowReader(_names(), [0])
    if has_checksum:
        source.add("_check_sum(row)")
    source.add(f"p = {_GUARD.size if has_checksum else int(version != NO_VERSION)}")
    if isinstance(layout, RowLayout):
        value = layout.read_with(source, {name: name for name in given})
    else:
        value = layout.read(source)
    source.end_run()
    with source.block("if p != len(row):"):
        source.add("_check_end(p, len(row))")
    source.add(f"return {value}")
    return source.compile(f"def function({', '.join(('row', *given))}):")


def _names() -> dict[str, Any]:
    """Return what every function can use."""
    return {
        "UUID": UUID,
        "starmap": starmap,
        "_no_pause": _no_pause,
        "_guarded": _guarded,
        "_check_sum": _check_sum,
        "_check_end": _check_end,
    }


def _guarded(body: bytes, version: int) -> bytes:
    return _GUARD.pack(version, crc32c(body)) + body


def _check_sum(row: bytes) -> None:
    if _GUARD.unpack_from(row)[1] != crc32c(row[_GUARD.size :]):
        raise ValueError("its checksum does not agree")


def _check_end(position: int, size: int) -> None:
    if position > size:
        raise ValueError(f"expected {position} bytes, got {size}")
    raise ValueError(f"{size - position} bytes too many")
