"""Positions over a compacted ledger: acknowledgements in any order, in any shape, reach the end."""

from random import Random

import pytest

from kledger.ledger import EARLIEST, Position
from kledger.ledger.cursors.compacted_positions import BEFORE_ALL, CompactedPositions
from kledger.ledger.cursors.cursor_state import CursorState
from kledger.ledger.metadata.ledger_list_state import LedgerListState
from kledger.ledger.metadata.records import CompactedLedger, ManagedLedgerRecord
from tests.ledger.words import closed, opened, pos

SEEDS = 300


def compacted_list(horizon: str | None) -> LedgerListState:
    """Ledgers 5, 8 and 9, which is open; 2 and 3 were removed."""
    present = None
    if horizon is not None:
        present = CompactedLedger(
            ledger_id=7, entries=1, size=1, horizon=pos(horizon), compacted_ms=1
        )
    head = ManagedLedgerRecord(managed_ledger_id=1, compacted=present)
    state = LedgerListState(head, [closed(5, 3), closed(8, 4), opened(9)])
    state.advance(pos("9:0"), 10)
    return state


def test_positions_up_to_the_horizon_exist_and_the_others_are_those_of_the_log() -> None:
    positions = CompactedPositions(compacted_list("5:1"))
    assert BEFORE_ALL == positions.first_position
    assert pos("0:0") == positions.next_valid(BEFORE_ALL)
    assert [pos("2:4"), pos("3:0"), pos("5:1"), pos("5:2"), pos("8:0")] == [
        positions.next_valid(pos(each)) for each in ("2:3", "3:-1", "5:0", "5:1", "5:2")
    ]
    assert [pos("2:3"), pos("3:-1"), pos("5:0")] == [
        positions.previous(pos(each)) for each in ("2:4", "3:0", "5:1")
    ]
    assert positions.is_valid(pos("2:77"))
    assert not positions.is_valid(pos("2:-1"))
    assert not positions.is_valid(pos("8:4"))
    assert positions.has_ledger(2)
    assert not positions.has_ledger(6)
    assert pos("2:0") == positions.first_readable(pos("2:-1"))
    assert pos("8:0") == positions.first_readable(pos("5:9"))


def test_without_a_compacted_ledger_it_is_the_log() -> None:
    listed = compacted_list(None)
    positions = CompactedPositions(listed)
    assert EARLIEST == positions.horizon
    assert listed.first_position == positions.first_position
    for text in ("2:0", "5:-1", "5:2", "8:3", "9:0"):
        assert listed.next_valid(pos(text)) == positions.next_valid(pos(text))
        assert listed.previous(pos(text)) == positions.previous(pos(text))
        assert listed.is_valid(pos(text)) == positions.is_valid(pos(text))


def test_between_two_reads_positions_are_those_that_were_read() -> None:
    positions = CompactedPositions(compacted_list("5:1"))
    positions.note_read(pos("0:0"), [pos("2:3"), pos("3:1")], pos("3:1"))
    positions.note_read(pos("3:2"), [], pos("5:1"))
    assert [pos("2:3"), pos("3:1"), pos("5:2")] == [
        positions.next_valid(each) for each in (BEFORE_ALL, pos("2:3"), pos("3:1"))
    ]
    assert pos("2:3") == positions.gap_end(pos("2:3"))
    assert pos("5:1") == positions.gap_end(pos("3:1"))
    positions.forget_upto(pos("2:3"))
    assert pos("3:1") == positions.next_valid(pos("2:3"))
    positions.forget_read()
    assert pos("2:4") == positions.next_valid(pos("2:3"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_order_of_reads_and_acknowledgements_ends_at_the_end(seed: int) -> None:
    """Compared with plain sets; rewinds and restarts come in between."""
    random = Random(seed)
    listed = compacted_list(random.choice(("2:9", "3:2", "5:0", "5:2", "8:1")))
    compacted = listed.head.compacted
    assert compacted is not None
    horizon = compacted.horizon
    log = [Position(5, n) for n in range(3)] + [Position(8, n) for n in range(4)] + [pos("9:0")]
    covered = [Position(ledger_id, n) for ledger_id in (2, 3) for n in range(10)]
    kept = [each for each in (*covered, *log) if each <= horizon and random.random() < 0.3]
    everything = [*kept, *(each for each in log if each > horizon)]
    state = CursorState(listed, EARLIEST, reads_compacted=True)
    state.reset_to(EARLIEST)
    acknowledged: set[Position] = set()
    while acknowledged != set(everything) or state.has_unread:
        unread = [each for each in everything if each >= state.read_position]
        match random.choice(("read", "read", "acknowledge", "rewind", "restart")):
            case "read" if state.has_unread:
                read = unread[: random.randint(1, 5)]
                is_log = bool(read) and read[0] > horizon
                read = [each for each in read if (each > horizon) is is_log]
                last = read[-1] if read else max(horizon, state.read_position)
                state.note_read(state.read_position, read, last)
                state.read_upto(last)
            case "acknowledge":
                delivered = [each for each in everything if each < state.read_position]
                left = [each for each in delivered if each not in acknowledged]
                if left:
                    done = random.sample(left, random.randint(1, len(left)))
                    state.delete(done)
                    acknowledged.update(done)
            case "rewind":
                state.rewind()
            case "restart":
                record, _ = state.record(ranges_max=100, batches_max=100)
                state = CursorState.recovered(listed, record)
                assert state.reads_compacted
        for each in everything:
            assert state.is_acknowledged(each) == (each in acknowledged), each
    assert (log[-1], 0, 0) == (state.mark_delete_position, state.backlog, state.hole_count)
