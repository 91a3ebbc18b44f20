"""Function runs: what filters and converters leave of stored batches, within limits."""

import pytest

from kledger.batches.builder import NewRecord, build_batch
from kledger.batches.pacing import no_pause
from kledger.batches.reader import iterate_batches, iterate_records
from kledger.named_topics.function_run import (
    FunctionLimits,
    FunctionNames,
    FunctionOutput,
    FunctionRun,
    FunctionsNotLoaded,
    apply_functions,
    find_next_offset,
)
from kledger.named_topics.model import ElementFailure

HERE = "tests.named_topics.functions"
ALL = FunctionLimits(0, 1_000, 1 << 20, 60_000)
HOUR_MS = 3_600_000


def run(*, filtering: str = "", converting: str = "") -> FunctionRun:
    names = [f"{HERE}:{each}" if each else "" for each in (filtering, converting)]
    return FunctionRun(FunctionNames(*names))


def batches(*parts: str, first_offset: int = 0) -> list[bytes]:
    """Build batches of one-letter values; a dot is a tombstone."""
    built = []
    for part in parts:
        records = [NewRecord(None if c == "." else c.encode(), timestamp=50) for c in part]
        built.append(bytes(build_batch(records, base_offset=first_offset)))
        first_offset += len(part)
    return built


def applied(run: FunctionRun, data: list[bytes], limits: FunctionLimits = ALL) -> FunctionOutput:
    sizes = [len(each) for each in data]
    return apply_functions(run, memoryview(b"".join(data)), sizes, limits, no_pause)


def elements(output: FunctionOutput) -> list[tuple[int, bytes | None]]:
    return [
        (record.offset, record.value)
        for _, batch in iterate_batches(b"".join(output.batches))
        for record in iterate_records(batch)
    ]


def test_batches_of_which_everything_stays_are_as_they_were() -> None:
    data = batches("ab", "c")
    assert FunctionOutput(3, tuple(data), ()) == applied(run(filtering="keeps_all"), data)


def test_nothing_is_left_of_batches_of_which_nothing_stays() -> None:
    assert FunctionOutput(3, (), ()) == applied(run(filtering="keeps_none"), batches("ab", "c"))


def test_elements_keep_their_offsets_and_times() -> None:
    output = applied(
        run(filtering="is_value", converting="shouted"), batches("a.b", "..", ".c", first_offset=7)
    )
    assert [(7, b"A"), (9, b"B"), (13, b"C")] == elements(output)
    assert 14 == output.next_offset
    times = [each.timestamp for batch in output.batches for each in iterate_records(batch)]
    assert [50, 50, 50] == times


def test_converter_that_returns_nothing_leaves_its_element_out() -> None:
    assert [(1, b"A")] == elements(applied(run(converting="shouted"), batches(".a.")))


def test_element_whose_function_raises_is_a_failure() -> None:
    output = applied(run(filtering="raises_at_b"), batches("abc", "b"))
    assert [(0, b"a"), (2, b"c")] == elements(output)
    reason = f"filter {HERE}:raises_at_b failed: SystemExit: b"
    assert (ElementFailure(1, reason), ElementFailure(3, reason)) == output.failures
    assert 4 == output.next_offset


@pytest.mark.parametrize(
    ("limits", "expected", "next_offset"),
    [
        (ALL._replace(start_offset=2), "cdef", 6),
        (ALL._replace(start_offset=1, elements_max=3), "bcd", 4),
        (ALL._replace(bytes_max=2), "ab", 2),
        (ALL._replace(time_ms_max=0), "a", 1),
        (ALL._replace(start_offset=4, elements_max=2), "ef", 6),
    ],
)
def test_call_begins_and_ends_at_its_limits(
    limits: FunctionLimits, expected: str, next_offset: int
) -> None:
    output = applied(run(converting="shouted"), batches("abc", "def"), limits)
    found = "".join(chr(value[0]) for _, value in elements(output) if value)
    assert (expected.upper(), next_offset) == (found, output.next_offset)


def test_damaged_batch_is_a_failure_and_the_next_ones_are_read() -> None:
    data = batches("ab", "cd", "ef")
    damaged = bytearray(data[1])
    damaged[-1] = 0x7F
    data[1] = bytes(damaged)
    output = applied(run(converting="shouted"), data)
    assert [0, 1, 4, 5] == [offset for offset, _ in elements(output) if offset not in {2, 3}]
    [failure] = output.failures
    assert (3, "cannot be read: ") == (failure.offset, failure.reason[:16])
    assert 6 == output.next_offset


@pytest.mark.parametrize(("start", "expected"), [(0, 3), (3, 3), (4, 4), (6, 6), (7, None)])
def test_next_offset_is_that_of_the_first_element_from_there(
    start: int, expected: int | None
) -> None:
    data = batches("ab", "cd", first_offset=3)
    sizes = [len(each) for each in data]
    state = run(filtering="keeps_none")
    joined = memoryview(b"".join(data))
    assert expected == find_next_offset(state, joined, sizes, start, no_pause)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tests.named_topics.nothing:f", "cannot be loaded: ModuleNotFoundError"),
        (f"{HERE}:nothing", "cannot be loaded: AttributeError"),
        (f"{HERE}:GATE", "expected a function, got 'KLEDGER_TEST_GATE'"),
    ],
)
def test_function_that_cannot_be_imported_is_named(name: str, message: str) -> None:
    with pytest.raises(FunctionsNotLoaded, match=message):
        FunctionRun(FunctionNames("", name))
