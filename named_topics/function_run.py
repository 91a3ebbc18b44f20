"""Function run: the filter and the converter of subscriber groups, in a process of their own.

Rule: a session of the compute pool makes a `FunctionRun`, which imports the functions, and calls
`apply_functions` with stored batches. Functions get the stored value, None for a tombstone; what a
converter returns is bytes, or None to leave the element out. What a function raises is the failure
of that element, which is left out, too.
Must not know: groups, channels, the event loop.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

from kledger.batches.builder import build_sparse_batch
from kledger.batches.errors import BatchError
from kledger.batches.header import read_header
from kledger.batches.pacing import STEPS_PER_PAUSE, Pause
from kledger.batches.reader import iterate_records
from kledger.batches.record import Record
from kledger.named_topics.model import ElementFailure
from kledger.runtime.clock import SystemClock
from kledger.runtime.foreign_error import shown

Function: TypeAlias = Callable[[bytes | None], Any]


class FunctionNames(NamedTuple):
    """The functions of a group, each as `module:attribute`; empty: there is none."""

    filter_name: str
    converter_name: str


class FunctionsNotLoaded(Exception):
    """A function cannot be imported, or is none."""


class FunctionLimits(NamedTuple):
    """Where one call begins and ends; it has at least one element, if there is one.

    Attributes:
        start_offset: of the first element.
        elements_max: to how many elements the functions are applied.
        bytes_max: after how many bytes of values the call ends.
        time_ms_max: after how long it ends, though not in the middle of a function.
    """

    start_offset: int
    elements_max: int
    bytes_max: int
    time_ms_max: int


class FunctionOutput(NamedTuple):
    """What the functions have left.

    Attributes:
        next_offset: where the next call begins.
        batches: of the elements that stay.
        failures: of those for which a function has failed, ascending.
    """

    next_offset: int
    batches: tuple[bytes, ...]
    failures: tuple[ElementFailure, ...]


class FunctionRun:
    """The state of a session: the functions."""

    def __init__(self, names: FunctionNames) -> None:
        """Import the functions. Raises FunctionsNotLoaded."""
        self._names = names
        self._filter = _imported("filter", names.filter_name)
        self._converter = _imported("converter", names.converter_name)

    @property
    def converts(self) -> bool:
        """Whether values may change."""
        return self._converter is not None

    def outcome_of(self, record: Record) -> Record | ElementFailure | None:
        """Return an element as the group gets it, or its failure; None: it is left out."""
        what = f"filter {self._names.filter_name}"
        value = record.value
        try:
            if self._filter is not None and not self._filter(value):
                return None
            if self._converter is not None:
                what = f"converter {self._names.converter_name}"
                value = _checked(self._converter(value))
                if value is None:
                    return None
        except MemoryError:
            raise  # the process ends
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is not our code
            return ElementFailure(record.offset, f"{what} failed: {shown(error)}")
        return Record(record.offset, record.timestamp, None, value)


def apply_functions(
    run: FunctionRun,
    data: memoryview,
    sizes: Sequence[int],
    limits: FunctionLimits,
    pause: Pause,
) -> FunctionOutput:
    """Apply the functions to the elements of some batches, within limits.

    Args:
        run: the state of the session.
        data: stored batches, one after the other.
        sizes: of each batch.
        limits: of this call.
        pause: called now and then.
    """
    clock = SystemClock()
    until_ms = clock.monotonic_ms() + limits.time_ms_max
    batches: list[bytes] = []
    failures: list[ElementFailure] = []
    applied = size = 0
    next_offset = limits.start_offset
    for batch in _split(data, sizes):
        header = read_header(batch)
        kept: list[Record] = []
        try:
            for record in iterate_records(batch):
                if record.offset < limits.start_offset:
                    continue
                is_over = applied >= limits.elements_max or size >= limits.bytes_max
                if is_over or (applied and clock.monotonic_ms() >= until_ms):
                    batches += _rebuilt(batch, kept, is_whole=False)
                    return FunctionOutput(record.offset, tuple(batches), tuple(failures))
                outcome = run.outcome_of(record)
                if isinstance(outcome, Record):
                    kept.append(outcome)
                    size += len(outcome.value or b"")
                elif outcome is not None:
                    failures.append(outcome)
                applied += 1
                if not applied % STEPS_PER_PAUSE:
                    pause()
        except BatchError as error:  # the next batches may be whole
            failures.append(ElementFailure(header.last_offset, f"cannot be read: {shown(error)}"))
        next_offset = header.last_offset + 1
        is_whole = not run.converts and len(kept) == header.record_count
        batches += _rebuilt(batch, kept, is_whole=is_whole)
    return FunctionOutput(next_offset, tuple(batches), tuple(failures))


def find_next_offset(
    run: FunctionRun, data: memoryview, sizes: Sequence[int], start_offset: int, pause: Pause
) -> int | None:
    """Return the offset of the first element from an offset on; None: there is none.

    Args:
        run: the state of the session.
        data: stored batches, one after the other.
        sizes: of each batch.
        start_offset: at or before the element.
        pause: not called, as no function is.
    """
    for batch in _split(data, sizes):
        try:
            for record in iterate_records(batch):
                if record.offset >= start_offset:
                    return record.offset
        except BatchError:  # `apply_functions` reports it
            return max(start_offset, read_header(batch).base_offset)
    return None


def _split(data: memoryview, sizes: Sequence[int]) -> Iterator[memoryview]:
    position = 0
    for size in sizes:
        yield data[position : position + size]
        position += size


def _rebuilt(batch: memoryview, kept: Sequence[Record], *, is_whole: bool) -> list[bytes]:
    """Return a batch of what stays, the same one if all does; none if nothing does."""
    if not kept:
        return []
    return [bytes(batch if is_whole else build_sparse_batch(kept))]


def _checked(value: object) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"expected bytes or None, got {type(value).__name__}")


def _imported(what: str, name: str) -> Function | None:
    if not name:
        return None
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is not our code
        raise FunctionsNotLoaded(f"{what} {name!r} cannot be loaded: {shown(error)}") from None
    if not callable(found):
        raise FunctionsNotLoaded(f"{what} {name!r}: expected a function, got {found!r:.100}")
    function: Function = found
    return function
