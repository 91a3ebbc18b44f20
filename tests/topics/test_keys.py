"""Keys: order and separation of rows."""

from uuid import UUID

from kledger.topics.keys import DELETION_KEYS, TOPIC_KEYS, PartitionKeys, ids_after

ID = UUID(int=7)


def test_rows_of_a_partition_share_its_prefix_and_nothing_else() -> None:
    keys, other = PartitionKeys(ID, 1), PartitionKeys(ID, 256)
    for key in (keys.checkpoint, keys.log_start, keys.ledger_summary(3), keys.interval(3, 4)):
        assert key.startswith(keys.prefix)
        assert not key.startswith(other.prefix)
    assert 5 == len(
        {keys.checkpoint, keys.log_start, keys.ledger_summary(3), keys.interval(3, 4), b""}
    )


def test_ids_are_ordered_and_come_back() -> None:
    keys = PartitionKeys(ID, 0)
    pairs = [(1, 0), (1, 255), (1, 256), (2, 0), (256, 1)]
    rows = [keys.interval(*pair) for pair in pairs]
    assert sorted(rows) == rows
    assert pairs == [ids_after(row, keys.intervals) for row in rows]
    assert (5,) == ids_after(keys.ledger_summary(5), keys.ledger_summaries)
    assert (9,) == ids_after(keys.interval(3, 9), keys.ledger_intervals(3))


def test_topics_and_deletions_do_not_mix() -> None:
    assert (b"Torders", b"D" + ID.bytes) == (TOPIC_KEYS.encode("orders"), DELETION_KEYS.encode(ID))
    assert (("orders",), (ID,)) == (
        TOPIC_KEYS.decode(b"Torders"),
        DELETION_KEYS.decode(b"D" + ID.bytes),
    )
