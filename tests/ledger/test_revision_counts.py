"""Which counts are kept, and for how long."""

from kledger.ledger.revision_counts import RevisionCounts


def test_a_count_stays_as_long_as_its_cursor() -> None:
    counts = RevisionCounts()
    counts.of("orders", "c").add(2)
    counts.closed("orders", "c")
    assert 2 == counts.of("orders", "c").value
    assert 0 == counts.of("other", "c").value
    counts.forget("orders", "c")
    assert 0 == counts.of("orders", "c").value


def test_closed_cursors_that_were_never_revised_cost_nothing() -> None:
    counts = RevisionCounts()
    counts.of("orders", "c")
    counts.closed("orders", "c")
    counts.closed("orders", "unknown")
    assert (0, {}) == (len(counts), counts._counters)


def test_a_managed_ledger_is_forgotten_with_all_its_counts() -> None:
    counts = RevisionCounts()
    for name in ("a", "b"):
        counts.of("orders", name).add()
    counts.of("other", "a").add()
    counts.forget_all("orders")
    counts.forget("orders", "a")
    assert 1 == len(counts)
