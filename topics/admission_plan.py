"""Admission plan: whether a batch may enter a topic, and what has to change in it before.

Rule: the header is always checked; the records are walked only where the topic's configuration
says so, which by default is on compacted topics alone, or when the header states times that are
not allowed: otherwise a large batch costs no more than a small one, and the time rules hold for
what the header states. Changes that touch the checksum redo it.
Must not know: offsets, producers, clocks.
"""

from batches.errors import InvalidTimestamp
from batches.header import (
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    check,
    clear_timestamp_type,
    set_log_append_time,
    set_max_timestamp,
)
from batches.validation import NO_TIMESTAMP, RECORD_ERRORS_MAX, check_records
from topics.topic_config import TopicConfig


def admit(batch: memoryview, config: TopicConfig, now_ms: int) -> BatchHeader:
    """Check a produced batch against its topic and make its time the topic's.

    Args:
        batch: the records field of one partition; writable, and it may be written to.
        config: what holds in the topic.
        now_ms: the time of the append.

    Returns:
        The header as it is after the changes, but for the checksum.

    Raises:
        BatchError: what is wrong with it.
    """
    header = check(batch, config.size_max)
    attributes = header.attributes
    if header.size != len(batch):
        batch = batch[: header.size]
    if config.is_log_append_time:
        if attributes & LOG_APPEND_TIME_BIT:
            raise _type_error(header)
        if config.is_walked:
            check_records(batch, header, config.record_rules(now_ms))
        set_log_append_time(batch, now_ms)
        return header._replace(max_timestamp=now_ms, attributes=attributes | LOG_APPEND_TIME_BIT)
    if attributes & LOG_APPEND_TIME_BIT:
        clear_timestamp_type(batch)
        header = header._replace(attributes=attributes & ~LOG_APPEND_TIME_BIT)
    is_out_of_time = header.max_timestamp > now_ms + config.timestamp_after_max_ms or (
        header.base_timestamp < now_ms - config.timestamp_before_max_ms
        and header.base_timestamp != NO_TIMESTAMP
    )
    if config.is_walked or is_out_of_time:
        return _walk(batch, header, config, now_ms)
    return header


def _walk(batch: memoryview, header: BatchHeader, config: TopicConfig, now_ms: int) -> BatchHeader:
    """Look at every record; a max timestamp that is not the largest is put right."""
    largest = check_records(batch, header, config.record_rules(now_ms))
    if largest == header.max_timestamp:
        return header
    set_max_timestamp(batch, largest)
    return header._replace(max_timestamp=largest)


def _type_error(header: BatchHeader) -> InvalidTimestamp:
    """A producer must not say that its times are those of the log; every record is at fault."""
    message = (
        "One or more records have been rejected due to invalid timestamp: "
        "Producer should not set timestamp type to LogAppendTime"
    )
    count = min(header.record_count, RECORD_ERRORS_MAX)
    return InvalidTimestamp(message, tuple((index, message) for index in range(count)))
