"""Schema: messages of the Kafka protocol declared as typed classes.

    class HeartbeatRequest(Message, key=12, versions="0-4", flexible="4+"):
        group_id: str = ""
        generation_id: Int32 = 0
        member_id: str = ""
        group_instance_id: str | None = field(versions="3+", default=None)

The annotation is the type, on the wire and for the type checker; `field` declares what a plain
default cannot express. Every field has Kafka's default, so a constructor takes only what differs;
a default `[]` means a new list each time. A field with `| None` is nullable in all its versions
unless `nullable` names others. Instances have slots, compare by value and are mutable. Where Kafka
has two structs of one name in a module, one has another name here, and Kafka's as `kafka_name`.

Rule: declaring costs next to nothing; the constructor and the codec are compiled on first use.
Must not know: bytes (that is `codec`), what a field means.
"""

import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, TypeVar, cast, dataclass_transform, overload
from uuid import UUID

from kledger.gateway.wire.primitives import Buffer

Int8 = Annotated[int, "int8"]
Int16 = Annotated[int, "int16"]
Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]
Uint16 = Annotated[int, "uint16"]
Float64 = Annotated[float, "float64"]
Records = Annotated[Buffer, "records"]
"""Record batches, as a view of the frame: they are large and are passed on as they are.
Plain `bytes` fields are copied, because they are small and outlive the frame."""

T = TypeVar("T")
VERSION_MAX: Final = 0x7FFF


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions from `low` to `high`, both included; empty when high < low."""

    low: int
    high: int

    @staticmethod
    def parse(text: str) -> "VersionRange":
        """Read Kafka's notation: `3+`, `0-7`, `2`, `none`."""
        if text == "none":
            return VersionRange(0, -1)
        if text.endswith("+"):
            return VersionRange(int(text[:-1]), VERSION_MAX)
        low, _, high = text.partition("-")
        return VersionRange(int(low), int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __str__(self) -> str:
        return f"{self.low}-{self.high}"


EVERY_VERSION: Final = VersionRange(0, VERSION_MAX)
NO_VERSION: Final = VersionRange(0, -1)


@dataclass(frozen=True, slots=True)
class WireType:
    """How a value looks on the wire.

    Attributes:
        name: Kafka's name of the type, or `array`, or `struct`.
        code: letter of the struct module when the width is fixed, else empty.
        size: bytes when the width is fixed, else 0.
    """

    name: str
    code: str = ""
    size: int = 0
    element: "WireType | None" = None
    struct: "type[Struct] | None" = None

    def __str__(self) -> str:
        if self.element is not None:
            return f"[]{self.element}"
        return self.struct.__name__ if self.struct is not None else self.name


SCALARS: Final = {
    "int8": WireType("int8", "b", 1),
    "int16": WireType("int16", "h", 2),
    "int32": WireType("int32", "i", 4),
    "int64": WireType("int64", "q", 8),
    "uint16": WireType("uint16", "H", 2),
    "float64": WireType("float64", "d", 8),
    "bool": WireType("bool", "?", 1),
    "uuid": WireType("uuid", "16s", 16),
    "string": WireType("string"),
    "bytes": WireType("bytes"),
    "records": WireType("records"),
}
_PLAIN: Final = {bool: "bool", str: "string", bytes: "bytes", UUID: "uuid"}


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field of a struct, resolved.

    Attributes:
        default: the value, or for `is_fresh` a callable that makes a new one.
        is_fresh: the default is mutable and is made anew for each instance.
    """

    name: str
    type: WireType
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    default: Any
    is_fresh: bool

    def make_default(self) -> Any:
        """Return the default; a new one when it is mutable."""
        return self.default() if self.is_fresh else self.default


@dataclass(frozen=True, slots=True)
class _Spec:
    """What `field` was given; the class statement takes it out again."""

    default: Any
    is_fresh: bool
    versions: str
    nullable: str | None
    tag: int | None


@overload
def field(
    *, default: T, versions: str = "0+", nullable: str | None = None, tag: int | None = None
) -> T: ...
@overload
def field(
    *,
    default_factory: Callable[[], T],
    versions: str = "0+",
    nullable: str | None = None,
    tag: int | None = None,
) -> T: ...
def field(
    *,
    default: Any = None,
    default_factory: Callable[[], Any] | None = None,
    versions: str = "0+",
    nullable: str | None = None,
    tag: int | None = None,
) -> Any:
    """Declare a field with more than a plain default.

    Args:
        default: Kafka's default; `[]` is copied for each instance.
        default_factory: instead of `default`, the class of a struct that is never null.
        versions: versions that carry the field.
        nullable: versions in which it may be null, when these are not all of them.
        tag: number of the tagged field; it is then left out of the bytes when at its default.
    """
    made = default if default_factory is None else default_factory
    return _Spec(made, default_factory is not None, versions, nullable, tag)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructMeta(type):
    """Turns annotations into slots; keeps the declaration for later."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        kafka_name: str | None = None,
        **api: Any,
    ) -> "StructMeta":
        declared = {
            key: (annotation, namespace.pop(key, _MISSING))
            for key, annotation in namespace.get("__annotations__", {}).items()
            if not key.startswith("__")
        }
        namespace["__slots__"] = tuple(declared)
        namespace["__declared__"] = declared
        return super().__new__(mcs, kafka_name or name, bases, namespace)

    def __init__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        kafka_name: str | None = None,
        **api: Any,
    ) -> None:
        super().__init__(name, bases, namespace)
        if api:
            cls.__api__ = Api(
                name, api["key"], VersionRange.parse(api["versions"]),
                VersionRange.parse(api["flexible"]),
            )  # fmt: skip
            cls.__decoders__: dict[int, Callable[..., Any]] = {}
            cls.__encoders__: dict[int, Callable[..., Any]] = {}


@dataclass(frozen=True, slots=True)
class Api:
    """The API and the versions in the class statement of a message."""

    name: str
    key: int
    versions: VersionRange
    flexible: VersionRange


_MISSING: Final = object()


class Struct(metaclass=StructMeta):
    """A group of fields inside a message."""

    __slots__: ClassVar[tuple[str, ...]]
    __declared__: ClassVar[dict[str, tuple[Any, Any]]]
    __fields__: ClassVar[tuple[Field, ...]]

    def __init__(self, **values: Any) -> None:
        # Replaced by a compiled constructor the first time an instance is made.
        cls = type(self)
        init = _compile_init(cls)
        cls.__init__ = init  # type: ignore[method-assign]  # once for each class
        init(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # what can change has none

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name, '?')!r}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"


class ApiMessage(Struct):
    """A request or response body."""

    __api__: ClassVar[Api]
    __decoders__: ClassVar[dict[int, Callable[..., Any]]]
    __encoders__: ClassVar[dict[int, Callable[..., Any]]]


def fields_of(cls: type[Struct]) -> tuple[Field, ...]:
    """Return the fields of a class in wire order, resolved on the first call."""
    if "__fields__" not in cls.__dict__:
        cls.__fields__ = tuple(
            _resolve(cls, name, annotation, declared)
            for name, (annotation, declared) in cls.__declared__.items()
        )
    return cls.__fields__


def _resolve(cls: type[Struct], name: str, annotation: Any, declared: Any) -> Field:
    if declared is _MISSING:
        raise TypeError(f"{cls.__name__}.{name} has no default")
    spec = declared if isinstance(declared, _Spec) else _Spec(declared, False, "0+", None, None)
    annotation, is_nullable = _split_none(annotation)
    if spec.nullable is not None and not is_nullable:
        raise TypeError(f"{cls.__name__}.{name} is declared nullable but not annotated so")
    nullable = EVERY_VERSION if is_nullable else NO_VERSION
    default, is_fresh = (list, True) if spec.default == [] else (spec.default, spec.is_fresh)
    return Field(
        name=name,
        type=_wire_type(annotation),
        versions=VersionRange.parse(spec.versions),
        nullable=VersionRange.parse(spec.nullable) if spec.nullable is not None else nullable,
        tag=spec.tag,
        default=default,
        is_fresh=is_fresh,
    )


def _split_none(annotation: Any) -> tuple[Any, bool]:
    """Return an annotation without `| None`, and whether it had it."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation, False
    (rest,) = (one for one in typing.get_args(annotation) if one is not types.NoneType)
    return rest, True


def _wire_type(annotation: Any) -> WireType:
    if isinstance(annotation, StructMeta):
        return WireType("struct", struct=cast(type[Struct], annotation))
    if typing.get_origin(annotation) is list:
        return WireType("array", element=_wire_type(typing.get_args(annotation)[0]))
    if hasattr(annotation, "__metadata__"):
        return SCALARS[annotation.__metadata__[0]]
    return SCALARS[_PLAIN[annotation]]


def _compile_init(cls: type[Struct]) -> Callable[..., None]:
    """Write the constructor: keyword-only, one assignment per field."""
    names: dict[str, Any] = {"FRESH": _MISSING}
    parameters, body = [], []
    for index, one in enumerate(fields_of(cls)):
        names[f"d{index}"] = one.default
        if one.is_fresh:
            parameters.append(f"{one.name}=FRESH")
            body.append(f"self.{one.name} = d{index}() if {one.name} is FRESH else {one.name}")
        else:
            parameters.append(f"{one.name}=d{index}")
            body.append(f"self.{one.name} = {one.name}")
    lines = "\n    ".join(body)
    source = f"def __init__(self, *, {', '.join(parameters)}):\n    {lines}\n"
    exec(source, names)  # noqa: S102 - made from declarations, never from input
    return cast(Callable[..., None], names["__init__"])
