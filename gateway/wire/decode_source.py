"""Write the flat decode function of one message class and version.

Rule: fields of fixed width that follow each other, together with the length or count that ends
their run, are read by one `unpack_from`, which also checks that the bytes are there. A length or
count is compared with the bytes left before anything is made of it.
Must not know: how to write bytes; what a field means.

The shape of what comes out, for a flexible struct with an int32, a string and no known tags:

    o1.index, n = unpack2(data, pos)         # ">iB": the int32 and the string's first length byte
    pos += 5
    if n > 127: ...                          # the rare long varint
    stop = pos + n - 1
    if not pos <= stop <= end: raise ...     # null, or longer than what is left
    o1.name = data[pos:stop].decode()
    pos = stop
    n = data[pos]                            # tagged fields
    pos += 1
    if n: pos = skip_tags(data, pos, end, n)
"""

import struct
from collections.abc import Callable
from typing import Any

from kledger.gateway.wire import primitives
from kledger.gateway.wire.errors import MalformedMessage
from kledger.gateway.wire.primitives import DecodeError
from kledger.gateway.wire.schema import ApiMessage, Field, Struct, WireType
from kledger.gateway.wire.source import (
    FieldLocation,
    FunctionSource,
    fields_in,
    has_records,
    size_min,
)

FAULTS = (DecodeError, struct.error, IndexError, UnicodeDecodeError)
_TAG_COUNT = "tagged fields"


def compile_decoder(cls: type[ApiMessage], version: int) -> Callable[..., Any]:
    """Return the function (buffer, position) -> message."""
    writer = _DecoderWriter(cls, version)
    return writer.finish()


class _DecoderWriter:
    def __init__(self, cls: type[ApiMessage], version: int) -> None:
        self.cls = cls
        self.version = version
        self.is_flexible = version in cls.__api__.flexible
        self.is_view = has_records(cls)
        self.out = FunctionSource("def decode(buf, pos):")
        self.out.names |= {
            "FAULTS": FAULTS,
            "new": object.__new__,
            "unpack_from": struct.unpack_from,
            "wrong_length": primitives.wrong_length,
            "wrong_count": primitives.wrong_count,
            "read_uvarint": primitives.read_uvarint,
            "read_tag": primitives.read_tag,
            "check_tag_count": primitives.check_tag_count,
            "skip_tags": primitives.skip_tags,
            "uuid_from_bytes": primitives.uuid_from_bytes,
        }
        self.run: list[tuple[str, str, FieldLocation]] = []
        self.after_run: list[str] = []

    def finish(self) -> Callable[..., Any]:
        out = self.out
        # Copying a small body once makes every slice below cheaper; records stay views.
        out.add("data = memoryview(buf)" if self.is_view else "data = bytes(buf)")
        out.add("end = len(data)")
        out.add(f"budget = {primitives.ELEMENTS_MAX}")
        with out.block("try:"):
            self.struct(self.cls, "o", "")
            out.add("return o")
        with out.block("except FAULTS as error:"):
            out.add("raise explain(error, pos, end) from None")
        out.names["explain"] = self._explainer()
        return out.compile("decode", f"<{self.cls.__name__} v{self.version} decode>")

    def _explainer(self) -> Callable[[Exception, int, int], MalformedMessage]:
        name, version, locations = self.cls.__name__, self.version, self.out.locations

        def explain(error: Exception, pos: int, end: int) -> MalformedMessage:
            line = error.__traceback__.tb_lineno if error.__traceback__ else 0
            field, expected, got, pos = _diagnose(locations.get(line, []), error, pos, end - pos)
            return MalformedMessage(
                name, version, position=pos, field=field, expected=expected, got=got
            )

        return explain

    def struct(self, cls: type[Struct], var: str, path: str) -> None:
        """Read one struct into a new variable."""
        plain, tagged, absent = fields_in(cls, self.version)
        self.out.add(f"{var} = new({self.out.constant('C', cls)})")
        for one in absent + tagged:
            self.out.add(f"{var}.{one.name} = {self._default(one)}")
        for one in plain:
            self.field(one, var, path)
        if self.is_flexible:
            self.tags(tagged, var, path)
        self.flush()

    def _default(self, one: Field) -> str:
        if one.default is list:
            return "[]"
        if one.is_fresh:
            return f"{self.out.constant('C', one.default)}()"
        if one.default is None or isinstance(one.default, bool | int | float | str | bytes):
            return repr(one.default)
        return self.out.constant("D", one.default)

    def field(self, one: Field, var: str, path: str) -> None:
        self.value(one.type, f"{var}.{one.name}", f"{path}{one.name}", self.version in one.nullable)

    def value(self, kind: WireType, target: str, path: str, is_nullable: bool) -> None:
        """Read one value into `target`, which may be any assignable expression."""
        if kind.size:
            self.fixed(kind, target, path)
        elif kind.element is not None:
            self.array(kind.element, target, path, is_nullable)
        elif kind.struct is not None:
            self.inner_struct(kind.struct, target, path, is_nullable)
        else:
            self.sized(kind, target, path, is_nullable)

    def fixed(self, kind: WireType, target: str, path: str) -> None:
        if kind.name == "uuid":
            raw = self.out.fresh("u")
            self.after_run.append(f"{target} = uuid_from_bytes({raw})")
            target = raw
        self.run.append((target, kind.code, FieldLocation(path, str(kind), kind.size)))

    def flush(self) -> None:
        """Write the run of fixed-width fields collected so far as one read."""
        if not self.run:
            return
        locations = [location for _, _, location in self.run]
        codes = "".join(code for _, code, _ in self.run)
        if codes == "B":
            self.out.add(f"{self.run[0][0]} = data[pos]", *locations)
            self.out.add("pos += 1")
        else:
            layout = struct.Struct(">" + codes)
            targets = ", ".join(target for target, _, _ in self.run)
            comma = "," if len(self.run) == 1 else ""
            unpack = self.out.fresh("unpack")
            self.out.names[unpack] = layout.unpack_from
            self.out.add(f"{targets}{comma} = {unpack}(data, pos)", *locations)
            self.out.add(f"pos += {layout.size}")
        for line in self.after_run:
            self.out.add(line)
        self.run, self.after_run = [], []

    def prefix(self, wide_code: str, location: FieldLocation, count_max: int = 0) -> None:
        """Read a length or count into `n`: a varint, or of fixed width before flexible versions."""
        code = "B" if self.is_flexible else wide_code
        self.run.append(
            ("n", code, FieldLocation(location.path, location.expected, struct.calcsize(code)))
        )
        self.flush()
        if self.is_flexible:
            with self.out.block("if n > 127:"):
                self.out.add("n, pos = read_uvarint(data, pos - 1)", location)
                if count_max:
                    with self.out.block(f"if n > {count_max + 1}:"):
                        self.out.add("raise wrong_length(n - 1, end - pos)", location)

    def sized(self, kind: WireType, target: str, path: str, is_nullable: bool) -> None:
        """Read a string, bytes or records."""
        is_string = kind.name == "string"
        location = FieldLocation(path, f"nullable {kind}" if is_nullable else str(kind))
        self.prefix("h" if is_string else "i", location, primitives.STRING_BYTES_MAX * is_string)
        if not is_nullable:
            self._sized_body(kind, target, location)
            return
        with self.out.block("if n:" if self.is_flexible else "if n != -1:"):
            self._sized_body(kind, target, location)
        with self.out.block("else:"):
            self.out.add(f"{target} = None")

    def _sized_body(self, kind: WireType, target: str, location: FieldLocation) -> None:
        self.out.add("stop = pos + n - 1" if self.is_flexible else "stop = pos + n")
        with self.out.block("if not pos <= stop <= end:"):
            self.out.add("raise wrong_length(stop - pos, end - pos)", location)
        text = "data[pos:stop]"
        if kind.name == "string":
            text = f"str({text}, 'utf-8')" if self.is_view else f"{text}.decode()"
        elif kind.name == "bytes" and self.is_view:
            text = f"bytes({text})"
        self.out.add(f"{target} = {text}", location)
        self.out.add("pos = stop")

    def array(self, element: WireType, target: str, path: str, is_nullable: bool) -> None:
        location = FieldLocation(path, f"nullable []{element}" if is_nullable else f"[]{element}")
        self.prefix("i", location)
        if not is_nullable:
            self._array_body(element, target, path, location)
            return
        with self.out.block("if n:" if self.is_flexible else "if n != -1:"):
            self._array_body(element, target, path, location)
        with self.out.block("else:"):
            self.out.add(f"{target} = None")

    def _array_body(
        self, element: WireType, target: str, path: str, location: FieldLocation
    ) -> None:
        out = self.out
        size = size_min(element, self.version, is_flexible=self.is_flexible, is_nullable=False)
        if self.is_flexible:
            out.add("n -= 1")
        with out.block(f"if n < 0 or n * {size} > end - pos or n > budget:"):
            out.add("raise wrong_count(n, end - pos)", location)
        out.add("budget -= n")
        if element.size and element.name != "uuid":
            out.add(f"{target} = list(unpack_from(f'>{{n}}{element.code}', data, pos))", location)
            out.add(f"pos += n * {element.size}")
            return
        items, item = out.fresh("a"), out.fresh("o")
        out.add(f"{items} = {target} = []")
        with out.block("for _ in range(n):"):
            if element.struct is not None:
                self.struct(element.struct, item, f"{path}[].")
            else:
                self.value(element, item, f"{path}[]", False)
                self.flush()
            out.add(f"{items}.append({item})")

    def inner_struct(self, cls: type[Struct], target: str, path: str, is_nullable: bool) -> None:
        """Read a struct that is a field; a nullable one has a byte in front, -1 for null."""
        item = self.out.fresh("o")
        if not is_nullable:
            self.flush()
            self.struct(cls, item, f"{path}.")
            self.out.add(f"{target} = {item}")
            return
        self.run.append(("n", "b", FieldLocation(path, f"nullable {cls.__name__}", 1)))
        self.flush()
        with self.out.block("if n >= 0:"):
            self.struct(cls, item, f"{path}.")
            self.out.add(f"{target} = {item}")
        with self.out.block("else:"):
            self.out.add(f"{target} = None")

    def tags(self, tagged: list[Field], var: str, path: str) -> None:
        """Read the tagged fields; those that are not known are stepped over."""
        out, location = self.out, FieldLocation(f"{path}{_TAG_COUNT}", _TAG_COUNT, 1)
        self.run.append(("n", "B", location))
        self.flush()
        with out.block("if n:"):
            if not tagged:
                out.add("pos = skip_tags(data, pos, end, n)", location)
                return
            with out.block("if n > 127:"):
                out.add("n, pos = read_uvarint(data, pos - 1)", location)
            out.add("check_tag_count(n, end - pos)", location)
            tag, last = out.fresh("tag"), out.fresh("last")
            with out.block("for _ in range(n):"):
                out.add(f"{tag}, pos, {last} = read_tag(data, pos, end)", location)
                for one in tagged:
                    self._known_tag(one, tag, last, var, path)
                with out.block("else:"):
                    out.add(f"pos = {last}")

    def _known_tag(self, one: Field, tag: str, last: str, var: str, path: str) -> None:
        word = "if" if self.out.lines[-1].lstrip().startswith(f"{tag}, pos") else "elif"
        with self.out.block(f"{word} {tag} == {one.tag}:"):
            self.field(one, var, path)
            self.flush()
            with self.out.block(f"if pos != {last}:"):
                location = FieldLocation(f"{path}{one.name}", f"the size of tag {one.tag}")
                self.out.add(f"raise wrong_length({last} - pos, 0)", location)


def _diagnose(
    locations: list[FieldLocation], error: Exception, pos: int, left: int
) -> tuple[str, str, str, int]:
    """Return the error with the field, what was expected, what was read, and the position."""
    location = locations[0] if locations else FieldLocation("?", "?")
    if isinstance(error, struct.error):
        # A run did not fit: walk to the field that the bytes end in.
        for location in locations:
            if location.size > left:
                break
            pos, left = pos + location.size, left - location.size
    if isinstance(error, DecodeError):
        return location.path, error.expected or location.expected, error.got, pos
    if isinstance(error, UnicodeDecodeError):
        bad = f"byte {error.object[error.start]:#04x} at {error.start} of it"
        return location.path, f"{location.expected} in UTF-8", bad, pos
    return location.path, location.expected, f"{max(0, left)} bytes left", pos
