"""Which elements exist, for which groups."""

import pytest

from kledger.named_topics.retention_plan import (
    ChannelLog,
    first_offset_of_group,
    logical_start,
)


@pytest.mark.parametrize(
    ("log", "next_offsets", "is_retaining", "expected"),
    [
        (ChannelLog(0, 10), [4, 7], False, 4),  # all groups have committed what is before 4
        (ChannelLog(0, 10), [], False, 10),  # nobody will get what is there
        (ChannelLog(5, 10), [4], False, 5),  # the log was trimmed
        (ChannelLog(0, 10, 6), [4], False, 6),  # the rest has expired
        (ChannelLog(0, 10), [4, 7], True, 0),
        (ChannelLog(0, 10), [], True, 0),
        (ChannelLog(2, 10, 6), [9], True, 6),
        (ChannelLog(0, 10, 12), [], True, 10),
    ],
)
def test_logical_start(
    log: ChannelLog, next_offsets: list[int], is_retaining: bool, expected: int
) -> None:
    assert expected == logical_start(log, next_offsets, is_retaining=is_retaining)


def test_new_group_begins_at_the_tail_or_on_a_retaining_topic_at_the_head() -> None:
    log = ChannelLog(2, 10, 3)
    assert 10 == first_offset_of_group(log, is_retaining=False)
    assert 3 == first_offset_of_group(log, is_retaining=True)
