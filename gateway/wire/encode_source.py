"""Write the flat encode function of one message class and version.

Rule: fields of fixed width that follow each other, together with the length or count that ends
their run, are written by one `pack`. A field that the version does not have is left out; a
tagged field at its default is left out; tags ascend.
Must not know: how to read bytes; what a field means.

The function appends parts to a list, which the caller joins once; records are parts as they are.
"""

import struct
from collections.abc import Callable
from typing import Any

from kledger.gateway.wire import primitives
from kledger.gateway.wire.errors import UnencodableMessage
from kledger.gateway.wire.schema import ApiMessage, Field, Struct, WireType, fields_of
from kledger.gateway.wire.source import FieldLocation, FunctionSource, fields_in

FAULTS = (struct.error, AttributeError, TypeError, ValueError, IndexError)


def compile_encoder(cls: type[ApiMessage], version: int) -> Callable[..., Any]:
    """Return the function (message, parts) -> None."""
    return _EncoderWriter(cls, version).finish()


class _EncoderWriter:
    def __init__(self, cls: type[ApiMessage], version: int) -> None:
        self.cls = cls
        self.version = version
        self.is_flexible = version in cls.__api__.flexible
        self.out = FunctionSource("def encode(o, parts):")
        self.out.names |= {
            "FAULTS": FAULTS,
            "ZERO": primitives.UVARINTS[0],
            "UVARINTS": primitives.UVARINTS,
            "encode_uvarint": primitives.encode_uvarint,
            "pack": struct.pack,
        }
        self.run: list[tuple[str, str, FieldLocation]] = []
        self.adder = "add"

    def finish(self) -> Callable[..., Any]:
        out = self.out
        out.add("add = parts.append")
        with out.block("try:"):
            self.struct(self.cls, "o", "")
            out.add("return")
        with out.block("except FAULTS as error:"):
            out.add("raise explain(error) from error")
        out.names["explain"] = self._explainer()
        return out.compile("encode", f"<{self.cls.__name__} v{self.version} encode>")

    def _explainer(self) -> Callable[[Exception], UnencodableMessage]:
        name, version, locations = self.cls.__name__, self.version, self.out.locations

        def explain(error: Exception) -> UnencodableMessage:
            line = error.__traceback__.tb_lineno if error.__traceback__ else 0
            paths = [location.path for location in locations.get(line, [])]
            # A line serves a whole run, so the first and the last field of it are named.
            field = " to ".join(dict.fromkeys([*paths[:1], *paths[-1:]])) or "?"
            return UnencodableMessage(name, version, field=field, reason=str(error))

        return explain

    def struct(self, cls: type[Struct], var: str, path: str) -> None:
        plain, tagged, _ = fields_in(cls, self.version)
        for one in plain:
            self.field(one, var, path)
        if self.is_flexible:
            self.tags(tagged, var, path)
        self.flush()

    def field(self, one: Field, var: str, path: str) -> None:
        self.value(one.type, f"{var}.{one.name}", f"{path}{one.name}", self.version in one.nullable)

    def value(self, kind: WireType, value: str, path: str, is_nullable: bool) -> None:
        """Write the value of an expression."""
        location = FieldLocation(path, str(kind), kind.size)
        if kind.size:
            code = f"{value}.bytes" if kind.name == "uuid" else value
            self.run.append((code, kind.code, location))
        elif kind.element is not None:
            self.array(kind.element, value, location, is_nullable)
        elif kind.struct is not None:
            self.inner_struct(kind.struct, value, location, is_nullable)
        else:
            self.sized(kind, value, location, is_nullable)

    def flush(self) -> None:
        """Write the run of fixed-width fields collected so far as one part."""
        if not self.run:
            return
        values = [value for value, _, _ in self.run]
        codes = "".join(code for _, code, _ in self.run)
        locations = [location for _, _, location in self.run]
        if codes == "B" and values == ["0"]:
            self.out.add(f"{self.adder}(ZERO)")
        elif codes == "B":
            self.out.add(f"{self.adder}(UVARINTS[{values[0]}])", *locations)
        else:
            pack = self.out.fresh("pack")
            self.out.names[pack] = struct.Struct(">" + codes).pack
            self.out.add(f"{self.adder}({pack}({', '.join(values)}))", *locations)
        self.run = []

    def prefix(self, wide_code: str, location: FieldLocation) -> None:
        """Write the length or count in `n`; a short varint goes into the run before it."""
        if not self.is_flexible:
            self.run.append(("n", wide_code, location))
            self.flush()
            return
        before = list(self.run)
        with self.out.block("if n < 128:"):
            self.run.append(("n", "B", location))
            self.flush()
        with self.out.block("else:"):
            self.run = before
            self.flush()
            if location.expected == "string":
                with self.out.block(f"if n > {primitives.STRING_BYTES_MAX + 1}:"):
                    self.out.add("raise ValueError(f'a string of {n - 1} bytes')", location)
            self.out.add(f"{self.adder}(encode_uvarint(n))", location)

    def sized(self, kind: WireType, value: str, location: FieldLocation, is_nullable: bool) -> None:
        """Write a string, bytes or records."""
        is_string = kind.name == "string"
        more = " + 1" if self.is_flexible else ""
        data = "v.encode()" if is_string else "v"
        self.out.add(f"v = {value}", location)
        if is_nullable:
            with self.out.block("if v is None:"):
                self.out.add(f"b, n = b'', {0 if self.is_flexible else -1}")
            with self.out.block("else:"):
                self.out.add(f"b = {data}", location)
                self.out.add(f"n = len(b){more}", location)
        else:
            self.out.add(f"b = {data}", location)
            self.out.add(f"n = len(b){more}", location)
        self.prefix("h" if is_string else "i", location)
        self.out.add(f"{self.adder}(b)")

    def array(
        self, element: WireType, value: str, location: FieldLocation, is_nullable: bool
    ) -> None:
        out, items = self.out, self.out.fresh("a")
        more = " + 1" if self.is_flexible else ""
        out.add(f"{items} = {value}", location)
        if is_nullable:
            with out.block(f"if {items} is None:"):
                out.add(f"{items}, n = (), {0 if self.is_flexible else -1}")
            with out.block("else:"):
                out.add(f"n = len({items}){more}", location)
        else:
            out.add(f"n = len({items}){more}", location)
        self.prefix("i", location)
        if element.size and element.name != "uuid":
            out.add(f"{self.adder}(pack(f'>{{len({items})}}{element.code}', *{items}))", location)
            return
        item = out.fresh("o")
        with out.block(f"for {item} in {items}:", location):
            if element.struct is not None:
                self.struct(element.struct, item, f"{location.path}[].")
            else:
                self.value(element, item, f"{location.path}[]", False)
                self.flush()

    def inner_struct(
        self, cls: type[Struct], value: str, location: FieldLocation, is_nullable: bool
    ) -> None:
        """Write a struct that is a field; a nullable one has a byte in front, -1 for null."""
        item = self.out.fresh("o")
        self.out.add(f"{item} = {value}", location)
        if not is_nullable:
            self.struct(cls, item, f"{location.path}.")
            return
        before = list(self.run)
        with self.out.block(f"if {item} is None:"):
            self.run.append(("-1", "b", location))
            self.flush()
        with self.out.block("else:"):
            self.run = [*before, ("1", "b", location)]
            self.struct(cls, item, f"{location.path}.")

    def tags(self, tagged: list[Field], var: str, path: str) -> None:
        """Write the tagged fields that are not at their default."""
        if not tagged:
            self.run.append(("0", "B", FieldLocation(path, "tagged fields")))
            return
        out, tags = self.out, self.out.fresh("tags")
        before, self.run = self.run, []
        out.add(f"{tags} = []")
        for one in tagged:
            self._tagged_field(one, tags, var, path)
        self.run = before
        self.run.append((f"len({tags})", "B", FieldLocation(path, "tagged fields")))
        self.flush()
        out.add(f"{self.adder}(b''.join({tags}))")

    def _tagged_field(self, one: Field, tags: str, var: str, path: str) -> None:
        """Collect one tagged field as its tag, size and bytes."""
        out, parts, outer = self.out, self.out.fresh("parts"), self.adder
        location = FieldLocation(f"{path}{one.name}", str(one.type))
        with out.block(f"if {self._differs(one, f'{var}.{one.name}')}:", location):
            out.add(f"{parts} = []")
            self.adder = f"{parts}.append"
            self.field(one, var, path)
            self.flush()
            self.adder = outer
            out.add(f"b = b''.join({parts})")
            head = self.out.constant("TAG", primitives.encode_uvarint(one.tag or 0))
            out.add(f"{tags}.append({head} + encode_uvarint(len(b)) + b)")

    def _differs(self, one: Field, value: str) -> str:
        """Return the condition under which a tagged field is not at its default."""
        if one.default is None:
            return f"{value} is not None"
        if one.default is list:
            return value if self.version not in one.nullable else f"{value} is None or {value}"
        if one.is_fresh:
            inner = fields_of(one.default)
            return " or ".join(self._differs(part, f"{value}.{part.name}") for part in inner)
        if isinstance(one.default, bool | int | float | str | bytes):
            return f"{value} != {one.default!r}"
        return f"{value} != {self.out.constant('D', one.default)}"
