"""Errors: one base, and the table that translates what engines raise."""

import pytest

from kledger.ledger import errors
from kledger.ledger.engine import errors as engine_errors


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (engine_errors.StorageWriteFailed("no"), errors.StorageFailed),
        (engine_errors.SyncFailed("no"), errors.Fenced),
        (engine_errors.EntryMissing(1, 2), errors.NonRecoverable),
        (engine_errors.EntryCorrupt(1, 2, "checksum"), errors.Corrupt),
        (engine_errors.LogCorrupt("log-1", 17, "checksum"), errors.Corrupt),
        (engine_errors.FolderInUse("folder"), errors.StoreInUse),
        (engine_errors.FolderUnusable("folder"), errors.StoreUnusable),
        (engine_errors.IndexCorrupt("index"), errors.Corrupt),
        (engine_errors.StorageError("input/output error"), errors.StorageFailed),
        (RuntimeError("a bug"), errors.Fenced),
    ],
)
def test_engine_errors_are_translated(
    raised: Exception, expected: type[errors.LedgerError]
) -> None:
    translated = errors.from_engine(raised)
    assert expected is type(translated)
    assert str(raised) in str(translated)


def test_our_own_errors_pass() -> None:
    error = errors.Corrupt("here")
    assert error is errors.from_engine(error)


def test_a_full_storage_is_distinguished() -> None:
    full = errors.from_engine(engine_errors.StorageWriteFailed("no space", full=True))
    other = errors.from_engine(engine_errors.StorageWriteFailed("no"))
    assert isinstance(full, errors.StorageFailed)
    assert isinstance(other, errors.StorageFailed)
    assert (True, False) == (full.full, other.full)


def test_kinds() -> None:
    assert issubclass(errors.InvalidArgument, ValueError)
    assert issubclass(errors.Deleted, errors.Fenced)
    assert issubclass(errors.Deleted, errors.AlreadyClosed)
