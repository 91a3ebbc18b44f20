"""Where seeks lead, and what they do to the commit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kledger.named_topics.channel_record import ChannelRecord
from kledger.named_topics.model import (
    NO_OFFSET,
    SEEK_KINDS,
    TO_HEAD,
    TO_POSITION,
    TO_TAIL,
    TO_TIME,
    ChannelTarget,
)
from kledger.named_topics.seek_plan import SeekBounds, decide_seek

BOUNDS = SeekBounds(3, 10)
OFFSETS = st.integers(0, 30)


@pytest.mark.parametrize(
    ("kind", "value", "time_offset", "sought", "next_offset"),
    [
        (TO_POSITION, 5, None, 5, 6),
        (TO_POSITION, NO_OFFSET, None, 2, 3),  # before the head: at the head
        (TO_POSITION, 2, None, 2, 3),
        (TO_POSITION, 9, None, 9, 10),
        (TO_POSITION, 99, None, 9, 10),  # behind the tail: at the tail
        (TO_TIME, 0, 7, 6, 7),
        (TO_TIME, 0, 1, 2, 3),  # found before the head
        (TO_TIME, 0, None, 9, 10),  # nothing is newer
        (TO_HEAD, 0, None, 3, 3),
        (TO_TAIL, 0, None, 9, 10),
    ],
)
def test_target_is_clamped_to_what_is_there(
    kind: str, value: int, time_offset: int | None, sought: int, next_offset: int
) -> None:
    decision = decide_seek(
        ChannelRecord(3, 2, 7), ChannelTarget(4, kind, value), BOUNDS, time_offset=time_offset
    )
    assert (4, sought, next_offset, 8) == decision.outcome


@pytest.mark.parametrize(
    ("record", "kind", "value", "is_committing", "expected"),
    [
        # Forwards the commit stays.
        (ChannelRecord(5, 4), TO_POSITION, 7, False, (5, 4)),
        (ChannelRecord(5, 4), TO_TAIL, 0, False, (5, 4)),
        # Right before the commit: one element is rolled back, and comes again.
        (ChannelRecord(5, 4), TO_POSITION, 3, False, (4, 3)),
        (ChannelRecord(5, 4), TO_POSITION, 4, False, (5, 4)),
        (ChannelRecord(9, 8), TO_POSITION, 0, False, (3, 2)),
        # The head removes commits, also where it is behind them.
        (ChannelRecord(9, 8), TO_HEAD, 0, False, (3, NO_OFFSET)),
        (ChannelRecord(1, 0), TO_HEAD, 0, False, (3, NO_OFFSET)),
        # A seek that commits moves the commit in either direction.
        (ChannelRecord(5, 4), TO_POSITION, 7, True, (8, 7)),
        (ChannelRecord(9, 8), TO_POSITION, 5, True, (6, 5)),
        (ChannelRecord(3), TO_TAIL, 0, True, (10, 9)),
    ],
)
def test_commit_follows_backwards_and_on_demand(
    record: ChannelRecord, kind: str, value: int, is_committing: bool, expected: tuple[int, int]
) -> None:
    decision = decide_seek(
        record, ChannelTarget(0, kind, value), BOUNDS, is_committing=is_committing
    )
    assert (*expected, 1) == decision.record


@pytest.mark.parametrize("kind", SEEK_KINDS)
def test_empty_channel_has_the_position_before_its_first_offset(kind: str) -> None:
    decision = decide_seek(ChannelRecord(0), ChannelTarget(0, kind, 5), SeekBounds(0, 0))
    assert (NO_OFFSET, 0) == decision.outcome[1:3]


@given(
    bounds=st.builds(lambda head, size: SeekBounds(head, head + size), OFFSETS, OFFSETS),
    record=st.one_of(
        st.builds(ChannelRecord, OFFSETS),
        st.builds(lambda committed: ChannelRecord(committed + 1, committed), OFFSETS),
    ),
    target=st.builds(ChannelTarget, st.just(0), st.sampled_from(SEEK_KINDS), st.integers(-1, 40)),
)
def test_seek_never_leaves_the_channel_and_never_loses_an_uncommitted_element(
    bounds: SeekBounds, record: ChannelRecord, target: ChannelTarget
) -> None:
    outcome, revised = decide_seek(record, target, bounds)
    assert bounds.head_offset <= outcome.next_offset <= bounds.end_offset
    if target.kind != TO_HEAD:
        assert outcome.offset + 1 == outcome.next_offset
        assert revised.next_offset == min(record.next_offset, outcome.next_offset)
