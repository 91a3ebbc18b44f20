"""Translation of the errors of the ledger."""

from kledger.ledger import AlreadyClosed, Deleted, Fenced, StorageFailed, Terminated
from kledger.topics import errors
from kledger.topics.partition.results import failed_read, from_ledger_error


def test_errors_of_the_ledger_in_our_words() -> None:
    for gone in (AlreadyClosed("x"), Deleted("x")):
        assert errors.UnknownPartition is type(from_ledger_error(gone))
    for failed in (Fenced("x"), StorageFailed("x")):
        assert errors.TopicStorageFailed is type(from_ledger_error(failed))
    assert errors.PartitionTerminated is type(from_ledger_error(Terminated("x")))


def test_failed_read_states_no_offsets() -> None:
    error = errors.OffsetOutOfRange("x")
    assert (error, [], 0, -1, -1, -1) == failed_read(error)
