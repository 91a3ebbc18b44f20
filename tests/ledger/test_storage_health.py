"""Storage faults for operators: their kind, times and count, and when they end."""

import errno
import logging

import pytest

from kledger.ledger.engine.errors import (
    EntryCorrupt,
    EntryMissing,
    IndexCorrupt,
    LogCorrupt,
    StorageError,
    StorageWriteFailed,
)
from kledger.ledger.errors import AlreadyClosed, Fenced, LedgerError, TooManyRequests, from_engine
from kledger.ledger.storage_health import (
    LOG_INTERVAL_MS,
    RECENT_MS,
    StorageFaultKind,
    StorageHealth,
    kind_of,
)
from kledger.ledger.testing import ManualClock
from kledger.runtime.metrics import Metrics

Kind = StorageFaultKind
START_MS = 1_700_000_000_000


def caused(error: LedgerError | StorageError, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock(START_MS)
        self.metrics = Metrics()
        self.health = StorageHealth(self.clock, self.metrics)

    @property
    def kinds(self) -> list[Kind]:
        return [each.kind for each in self.health.faults()]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (EntryCorrupt(3, 5, "checksum"), Kind.CORRUPT_ENTRY),
        (EntryMissing(3, 5), Kind.CORRUPT_ENTRY),
        (IndexCorrupt("block"), Kind.CORRUPT_INDEX),
        (LogCorrupt("00000001.log", 7, "crc"), Kind.CORRUPT_INDEX),
        (StorageWriteFailed("full", full=True), Kind.DISK_FULL),
        (StorageWriteFailed("no"), Kind.WRITE_FAILED),
        (StorageError("i/o"), Kind.READ_FAILED),
        (OSError(errno.EIO, "i/o"), Kind.READ_FAILED),
        (OSError(errno.EMFILE, "x"), Kind.OPEN_FILES),
        (caused(StorageWriteFailed("no"), OSError(errno.ENFILE, "x")), Kind.OPEN_FILES),
        (StorageError("IO error: While open a file: Too many open files"), Kind.OPEN_FILES),
        (TooManyRequests("later"), None),
        (AlreadyClosed("closed"), None),
        (Fenced("taken over"), None),
    ],
    ids=str,
)
def test_kind_is_the_same_before_and_after_translation(
    error: Exception, expected: Kind | None
) -> None:
    translated = from_engine(error)
    if translated is not error:
        translated.__cause__ = error
    assert (expected, expected) == (kind_of(error), kind_of(translated))


def test_fault_has_its_count_and_times() -> None:
    bench = Bench()
    for entry in range(3):
        bench.health.failed(EntryCorrupt(3, entry, "checksum"), f"reading orders-0 at 3:{entry}")
        bench.clock.advance(10)
    (fault,) = bench.health.faults()
    assert (Kind.CORRUPT_ENTRY, 3) == (fault.kind, fault.count)
    assert (START_MS, START_MS + 20) == (fault.first_ms, fault.last_ms)
    assert "reading orders-0 at 3:2: entry 3:2: checksum" == fault.what
    shown = bench.metrics.snapshot()
    assert (3, 1) == (shown['storage_errors{kind="corrupt_entry"}'], shown["storage_faults"])
    assert 0 == shown['storage_errors{kind="disk_full"}']


def test_log_has_a_line_a_minute_for_each_kind_with_what_was_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A consumer that reads a damaged entry again and again does not fill a disk with logs."""
    bench, minutes = Bench(), 3
    for _ in range(minutes * 60):
        bench.health.failed(EntryCorrupt(3, 5, "checksum"), "reading orders-0 at 3:5")
        bench.clock.advance(LOG_INTERVAL_MS // 60)
    bench.health.failed(StorageWriteFailed("full", full=True), "writing")
    assert [
        f"storage fault corrupt_entry ({count} more before): "
        "reading orders-0 at 3:5: entry 3:5: checksum"
        for count in (0, 59, 59)
    ] + ["storage fault disk_full (0 more before): writing: full"] == caplog.messages
    assert {logging.ERROR} == {each.levelno for each in caplog.records}


def test_write_that_succeeds_ends_what_writes_met_and_nothing_else() -> None:
    bench = Bench()
    for error in (
        StorageWriteFailed("full", full=True),
        StorageWriteFailed("no"),
        EntryCorrupt(3, 5, "checksum"),
        StorageError("i/o"),
    ):
        bench.health.failed(error, "x")
    bench.health.write_succeeded()
    assert [Kind.CORRUPT_ENTRY, Kind.READ_FAILED] == bench.kinds
    bench.health.failed(StorageWriteFailed("full", full=True), "again")
    assert 1 == bench.health.faults()[-1].count


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "x"), StorageError("i/o")], ids=str)
def test_fault_of_reads_ends_when_it_was_not_seen_for_a_while(error: Exception) -> None:
    bench = Bench()
    bench.health.failed(error, "x")
    bench.clock.advance(RECENT_MS - 1)
    assert 1 == len(bench.kinds)
    bench.health.failed(error, "x")
    bench.clock.advance(RECENT_MS - 1)
    assert 2 == bench.health.faults()[0].count
    bench.clock.advance(1)
    assert [] == bench.kinds


def test_damage_stays() -> None:
    bench = Bench()
    bench.health.failed(EntryCorrupt(3, 5, "checksum"), "x")
    bench.clock.advance(100 * RECENT_MS)
    bench.health.write_succeeded()
    assert [Kind.CORRUPT_ENTRY] == bench.kinds


def test_errors_leave_in_the_words_of_the_ledger() -> None:
    bench = Bench()
    with pytest.raises(Fenced), bench.health.translating("x"):
        raise ZeroDivisionError
    with pytest.raises(LedgerError, match="i/o"), bench.health.translating("x"):
        raise StorageError("i/o")
    assert [Kind.READ_FAILED] == bench.kinds
