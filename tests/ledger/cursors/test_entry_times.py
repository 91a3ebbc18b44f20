"""Times of opaque entries, as far as they are known."""

import pytest

from kledger.ledger.cursors import entry_times
from kledger.ledger.cursors.entry_times import UNKNOWN_MS, EntryTimes
from tests.ledger.words import pos


def times(latest: dict[int, int] | None = None) -> EntryTimes:
    return EntryTimes((latest or {}).get)


def test_an_entry_has_the_time_noted_at_or_before_it() -> None:
    known = times()
    for text, time_ms in (("3:0", 10), ("3:1", 10), ("3:4", 20), ("5:0", 30)):
        known.record(pos(text), time_ms)
    found = [known.time_of(pos(text)) for text in ("3:0", "3:1", "3:3", "3:4", "3:9", "5:2")]
    assert [10, 10, 10, 20, 20, 30] == found


def test_what_was_not_noted_is_as_new_as_its_ledger_can_be() -> None:
    known = times({3: 70})
    known.record(pos("3:4"), 20)
    assert [70, 20, UNKNOWN_MS] == [known.time_of(pos(text)) for text in ("3:3", "3:4", "5:0")]
    known.record(pos("3:2"), 5)  # too late
    assert 70 == known.time_of(pos("3:3"))


def test_forgotten_ledgers_and_old_ones_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_times, "STEPS_MAX", 3)
    known = times()
    for number, text in enumerate(("3:0", "3:1", "5:0", "5:1")):
        known.record(pos(text), number)
    assert [UNKNOWN_MS, 3] == [known.time_of(pos(text)) for text in ("3:1", "5:1")]
    known.forget(5)
    known.forget(5)
    assert UNKNOWN_MS == known.time_of(pos("5:1"))
