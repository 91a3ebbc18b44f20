"""Errors of record batches, one class for each error code of the protocol.

Rule: the class decides the answer to the peer; the message gives the expected and the actual value.
Must not know: error codes of the wire; the gateway maps the classes to them.
"""


class BatchError(Exception):
    """Base of everything this package raises about a batch."""


class CorruptBatch(BatchError):
    """The bytes are no batch, or were damaged in transfer."""


class DecompressedTooLarge(CorruptBatch):
    """The compressed records hold more bytes than the limit."""


class InvalidBatch(BatchError):
    """The batch is intact, but breaks a rule for produced batches.

    Attributes:
        record_errors: (index of the record, message) for each record at fault; empty when the
            batch as a whole is.
    """

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class UnsupportedCompression(BatchError):
    """The codec is unknown, or not allowed where the batch arrived."""


class BatchTooLarge(BatchError):
    """The batch, as received, is larger than the limit."""


class TimestampNotAllowed(BatchError):
    """A timestamp, or its type, is not allowed by the topic.

    Attributes:
        record_errors: as in `InvalidBatch`.
    """

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors
