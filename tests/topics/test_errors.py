"""Translation of the errors of batches."""

import pytest

from kledger.batches import errors as batch_errors
from kledger.topics import errors


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (batch_errors.CorruptBatch, errors.CorruptMessage),
        (batch_errors.InvalidBatch, errors.InvalidRecord),
        (batch_errors.UnsupportedCompression, errors.UnsupportedCompressionType),
        (batch_errors.BatchTooLarge, errors.MessageTooLarge),
        (batch_errors.TimestampNotAllowed, errors.InvalidTimestamp),
    ],
)
def test_errors_of_batches_in_our_words(
    theirs: type[batch_errors.BatchError], ours: type[errors.TopicsError]
) -> None:
    found = errors.from_batch_error(theirs("why"))
    assert (ours, "why") == (type(found), str(found))


def test_record_errors_are_kept() -> None:
    for theirs in (batch_errors.InvalidBatch, batch_errors.TimestampNotAllowed):
        found = errors.from_batch_error(theirs("why", ((3, "no key"),)))
        assert ((3, "no key"),) == found.record_errors  # type: ignore[attr-defined]
