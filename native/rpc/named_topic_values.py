"""Converts the values of `named_topics.model` to protobuf messages of the same names and back.

Rule: a class and its message have the same fields, so that one codec, made of the annotations of
the class, serves all of them; a field that may be None is absent then. Only commits have a form of
their own, columns of numbers and runs of equal outcomes: a call may have thousands, and a message
for each would cost more than the commit itself.
Must not know: calls, connections.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from types import UnionType
from typing import Any, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

from kledger.named_topics import model
from kledger.native.errors import InvalidArgument
from kledger.native.proto import kledger_native_pb2 as pb

Value = TypeVar("Value")
Convert = Callable[[Any], Any]
KINDS: tuple[type, ...] = (
    model.NamedTopicOptions,
    model.NamedTopicInfo,
    model.SubscriberJoin,
    model.OwnedChannel,
    model.ChannelAllocation,
    model.ChannelFetch,
    model.ChannelPoll,
    model.ElementFailure,
    model.ChannelElements,
    model.ChannelPollResult,
    model.ChannelTarget,
    model.SeekRequest,
    model.SeekOutcome,
    model.ChannelEnds,
    model.SubscriberGroupInfo,
)
"""A class comes behind those of its fields."""
_COMMIT_COLUMNS = ("channels", "offsets", "read_offsets", "revisions")
"""Of the fields of `ChannelCommit`, in their order."""


class ValueCodec(Generic[Value]):
    """Writes and reads the values of one class.

    Attributes:
        write: takes a value, returns its message.
        read: takes a message, returns its value.
    """

    def __init__(self, kind: type[Value], known: "Mapping[type, ValueCodec[Any]]") -> None:
        """Args: known: the codecs of the classes of its fields."""
        self._kind = kind
        self._message: Any = getattr(pb, kind.__name__)
        hints = get_type_hints(kind)
        self._fields = {name: _converters(hint, known) for name, hint in hints.items()}
        self._optional = {name for name, hint in hints.items() if get_origin(hint) is UnionType}
        self.write: Convert = self._write
        self.read: Callable[[Any], Value] = self._read
        if issubclass(kind, tuple) and all(write is _same for write, _ in self._fields.values()):
            # Of these a call may have thousands.
            names, fields = tuple(hints), attrgetter(*hints)
            self.write = lambda value: self._message(**dict(zip(names, value, strict=True)))
            self.read = lambda message: kind(*fields(message))

    def _write(self, value: Value) -> Any:
        found = {name: (write, getattr(value, name)) for name, (write, _) in self._fields.items()}
        return self._message(
            **{name: write(each) for name, (write, each) in found.items() if each is not None}
        )

    def _read(self, message: Any) -> Value:
        return self._kind(
            **{
                name: None
                if name in self._optional and not message.HasField(name)
                else read(getattr(message, name))
                for name, (_, read) in self._fields.items()
            }
        )


def _converters(hint: Any, known: Mapping[type, ValueCodec[Any]]) -> tuple[Convert, Convert]:
    """Return how a field is written and read."""
    if get_origin(hint) is tuple:
        write, read = _converters(get_args(hint)[0], known)
        return (
            lambda values: [write(each) for each in values],
            lambda messages: tuple([read(each) for each in messages]),
        )
    if get_origin(hint) is UnionType:
        return _converters(get_args(hint)[0], known)
    if hint in known:
        return known[hint].write, known[hint].read
    return _same, _same


def _same(value: Any) -> Any:
    return value


def _codecs() -> dict[type, ValueCodec[Any]]:
    known: dict[type, ValueCodec[Any]] = {}
    for kind in KINDS:
        known[kind] = ValueCodec(kind, known)
    return known


_CODECS: Mapping[type, ValueCodec[Any]] = _codecs()
NAMED_TOPIC_CODECS: Mapping[str, ValueCodec[Any]] = {
    kind.__name__: codec for kind, codec in _CODECS.items()
}
"""The codecs by the names of the messages."""


def commit_request_to(request: model.CommitRequest) -> pb.CommitRequest:
    """Write the commits of a request in columns."""
    columns = dict(zip(_COMMIT_COLUMNS, zip(*request.commits, strict=True), strict=False))
    return pb.CommitRequest(group=request.group, subscriber=request.subscriber, **columns)


def commit_request_from(message: pb.CommitRequest) -> model.CommitRequest:
    """Read the commits of a request. Raises InvalidArgument."""
    columns = [getattr(message, name) for name in _COMMIT_COLUMNS]
    if len({len(each) for each in columns}) > 1:
        sizes = ", ".join(f"{len(getattr(message, name))} {name}" for name in _COMMIT_COLUMNS)
        raise InvalidArgument(f"commits: expected as many of each number, got {sizes}")
    commits = tuple(map(model.ChannelCommit, *columns))
    return model.CommitRequest(message.group, message.subscriber, commits)


def commit_outcomes_to(outcomes: Sequence[model.CommitOutcome]) -> list[pb.CommitOutcome]:
    """Write one message for those in a row that are equal."""
    return [
        pb.CommitOutcome(
            status=outcome.status, error=outcome.error, reason=outcome.reason, count=len(list(run))
        )
        for outcome, run in groupby(outcomes)
    ]


def commit_outcomes_from(messages: Iterable[pb.CommitOutcome]) -> list[model.CommitOutcome]:
    """Read the outcome of each commit."""
    outcomes: list[model.CommitOutcome] = []
    for each in messages:
        outcomes += [model.CommitOutcome(each.status, each.error, each.reason)] * each.count
    return outcomes


def codec_of(kind: type[Value]) -> ValueCodec[Value]:
    """Return the codec of a class."""
    return cast(ValueCodec[Value], _CODECS[kind])
