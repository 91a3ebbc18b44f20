"""Admission plan: whether a topic accepts a batch, and what changes in it first.

Rule: the header is always checked. The records are walked only if the topic's configuration says
so, by default for compacted topics, or if the header has times that are not allowed; otherwise a
large batch costs no more than a small one, and the time rules apply to the header. The caller walks
(`record_walk`) and passes the result. A change that the checksum covers computes it again.
Must not know: offsets, producers, clocks.
"""

from kledger.batches.errors import TimestampNotAllowed
from kledger.batches.header import (
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    check,
    clear_timestamp_type,
    set_log_append_time,
    set_max_timestamp,
)
from kledger.batches.validation import NO_TIMESTAMP, RECORD_ERRORS_MAX
from kledger.topics.config.topic_config import TopicConfig
from kledger.topics.partition.record_walk import RecordWalk, WalkNeeded, WalkResult


def admit(
    batch: memoryview, config: TopicConfig, now_ms: int, walked: WalkResult | None = None
) -> BatchHeader:
    """Check a produced batch against its topic's rules and apply the topic's timestamp type.

    Args:
        batch: the records field of one partition; writable, and it may be written to.
        config: of the topic.
        now_ms: the time of the append.
        walked: the result of a walk over its records, if one was needed.

    Returns:
        The header after the changes, but with the old checksum.

    Raises:
        BatchError: the batch breaks a rule.
        WalkNeeded: only a walk can decide; the batch was not changed.
    """
    header = check(batch, config.size_max)
    attributes = header.attributes
    if header.size != len(batch):
        batch = batch[: header.size]
    if config.is_log_append_time:
        if attributes & LOG_APPEND_TIME_BIT:
            raise _type_error(header)
        if config.is_walked:
            _largest_timestamp(batch, header, config, now_ms, walked)
        set_log_append_time(batch, now_ms)
        return header._replace(max_timestamp=now_ms, attributes=attributes | LOG_APPEND_TIME_BIT)
    largest = header.max_timestamp
    if (
        config.is_walked
        or largest > now_ms + config.timestamp_after_max_ms
        or (
            header.base_timestamp < now_ms - config.timestamp_before_max_ms
            and header.base_timestamp != NO_TIMESTAMP
        )
    ):
        largest = _largest_timestamp(batch, header, config, now_ms, walked)
    if attributes & LOG_APPEND_TIME_BIT:
        clear_timestamp_type(batch)
        header = header._replace(attributes=attributes & ~LOG_APPEND_TIME_BIT)
    if largest != header.max_timestamp:
        set_max_timestamp(batch, largest)
        header = header._replace(max_timestamp=largest)
    return header


def _largest_timestamp(
    batch: memoryview,
    header: BatchHeader,
    config: TopicConfig,
    now_ms: int,
    walked: WalkResult | None,
) -> int:
    """Return the largest timestamp of a walk under this configuration; raise its error."""
    if walked is None or walked.config is not config:
        raise WalkNeeded(RecordWalk(batch, header, config, now_ms))
    if walked.error is not None:
        raise walked.error
    return walked.largest_timestamp


def _type_error(header: BatchHeader) -> TimestampNotAllowed:
    """The error for a producer that sets LogAppendTime itself; every record is at fault."""
    message = (
        "One or more records have been rejected due to invalid timestamp: "
        "Producer should not set timestamp type to LogAppendTime"
    )
    count = min(header.record_count, RECORD_ERRORS_MAX)
    return TimestampNotAllowed(message, tuple((index, message) for index in range(count)))
