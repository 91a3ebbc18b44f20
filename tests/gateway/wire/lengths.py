"""Where lengths and counts stand in the bytes of a message, so that tests can put impossible ones.

Rule: writes the bytes by itself; a test compares them with the encoder's, so that no length can be
missed.
"""

import struct
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kledger.gateway.wire.primitives import encode_uvarint
from kledger.gateway.wire.schema import ApiMessage, Struct, WireType, fields_of
from tests.gateway.wire.random_messages import sample, settle

IMPOSSIBLE = {"h": (-32_768, -2, 32_767), "i": (-(2**31), -2, 2**31 - 1)}
IMPOSSIBLE_VARINTS = (2**31, 2**32 - 1, 2**31 - 1, 2**28)
"""The first two are negative to a reader that takes them for an int32."""
STEPPED_OVER_BY_FETCH = {"cluster_id", "replica_state.tagged fields"}
"""Tagged fields of followers, which the parser of Fetch does not look into."""


@dataclass(frozen=True)
class LengthField:
    """One length or count: the path of its field, where it stands, and how it is written."""

    path: str
    start: int
    stop: int
    code: str
    is_nullable: bool

    def impossible(self) -> list[bytes]:
        """Return what must not stand here: negative values, null where forbidden, huge ones."""
        if self.code == "varint":
            nulls = [b"\0"] if not self.is_nullable else []
            return nulls + [encode_uvarint(value) for value in IMPOSSIBLE_VARINTS]
        values = IMPOSSIBLE[self.code] + (() if self.is_nullable else (-1,))
        return [struct.pack(f">{self.code}", value) for value in values]


@dataclass
class SampleBody:
    """The body of `sample(cls)` in one version, and every length in it."""

    cls: type[ApiMessage]
    version: int
    data: bytearray = field(default_factory=bytearray)
    lengths: list[LengthField] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._is_flexible = self.version in self.cls.__api__.flexible
        self._struct(settle(sample(self.cls), self.version), "")

    def broken(self) -> list[tuple[LengthField, bytes]]:
        """Return the body once for each impossible value of each length."""
        return [
            (one, bytes(self.data[: one.start]) + value + bytes(self.data[one.stop :]))
            for one in self.lengths
            for value in one.impossible()
        ]

    def _struct(self, value: Struct, path: str) -> None:
        present = [one for one in fields_of(type(value)) if self.version in one.versions]
        for one in present:
            if one.tag is None:
                is_nullable = self.version in one.nullable
                self._value(one.type, getattr(value, one.name), f"{path}{one.name}", is_nullable)
        if not self._is_flexible:
            return
        tagged = sorted((one.tag, one) for one in present if one.tag is not None)
        self._length(f"{path}tagged fields", len(tagged), "varint", is_nullable=True)
        for tag, one in tagged:
            is_nullable = self.version in one.nullable
            self.data += encode_uvarint(tag)
            inner = SampleBody.__new__(SampleBody)
            inner.version, inner._is_flexible = self.version, True
            inner.data, inner.lengths = bytearray(), []
            inner._value(one.type, getattr(value, one.name), f"{path}{one.name}", is_nullable)
            self._length(f"{path}tagged fields", len(inner.data), "varint", is_nullable=True)
            self.lengths += [
                LengthField(
                    each.path,
                    each.start + len(self.data),
                    each.stop + len(self.data),
                    each.code,
                    each.is_nullable,
                )
                for each in inner.lengths
            ]
            self.data += inner.data

    def _length(self, path: str, value: int, code: str, *, is_nullable: bool) -> None:
        start = len(self.data)
        self.data += encode_uvarint(value) if code == "varint" else struct.pack(f">{code}", value)
        self.lengths.append(LengthField(path, start, len(self.data), code, is_nullable))

    def _value(self, kind: WireType, value: Any, path: str, is_nullable: bool) -> None:
        if kind.size:
            raw = value.bytes if isinstance(value, UUID) else value
            self.data += struct.pack(f">{kind.code}", raw)
        elif kind.struct is not None:
            self.data += b"\x01" * is_nullable
            self._struct(value, f"{path}.")
        elif kind.element is not None:
            self._sized(path, len(value), "i", is_nullable=is_nullable)
            inside = f"{path}[]"
            for each in value:
                if kind.element.struct is not None:
                    self._struct(each, f"{inside}.")
                else:
                    self._value(kind.element, each, inside, False)
        else:
            raw = value.encode() if isinstance(value, str) else bytes(value)
            self._sized(path, len(raw), "h" if kind.name == "string" else "i", is_nullable)
            self.data += raw

    def _sized(self, path: str, size: int, code: str, is_nullable: bool) -> None:
        is_flexible = self._is_flexible
        self._length(
            path, size + is_flexible, "varint" if is_flexible else code, is_nullable=is_nullable
        )
