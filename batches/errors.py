"""What can be wrong with a record batch, one class per kind of answer.

Rule: the class says what the peer is told; the message says what was expected and what came.
Must not know: error numbers of the wire; they are given where the gateway answers.
"""


class BatchError(Exception):
    """Base of everything this room raises about a batch."""


class CorruptBatch(BatchError):
    """The bytes cannot be a batch, or were damaged on their way."""


class DecompressedTooLarge(CorruptBatch):
    """What is compressed holds more bytes than it may."""


class InvalidBatch(BatchError):
    """The batch is whole, but breaks a rule for produced batches.

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
    """The batch, as it is on the wire, is larger than the limit in force."""


class TimestampNotAllowed(BatchError):
    """A timestamp, or its type, is not allowed by the topic.

    Attributes:
        record_errors: as in `InvalidBatch`.
    """

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors
