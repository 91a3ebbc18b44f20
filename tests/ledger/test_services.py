"""Ids are given out once; versions are compared before they are set."""

from ledger import keys
from ledger.records import decode_counter
from ledger.services import IdCounter, MetadataVersions


def test_ids_are_given_out_once_and_the_row_covers_them() -> None:
    ids = IdCounter(5)
    assert [5, 6, 7] == [ids.take() for _ in range(3)]
    key, row = ids.row()
    assert keys.ID_COUNTER == key
    assert row is not None
    assert 8 == decode_counter(row)


def test_only_who_knows_the_newest_version_moves_it() -> None:
    versions = MetadataVersions()
    assert not versions.compare_and_set("a", 1, 2)
    versions.reset("a", 1)
    assert versions.compare_and_set("a", 1, 2)
    assert not versions.compare_and_set("a", 1, 2)
    assert not versions.compare_and_set("b", 2, 3)
    versions.forget("a")
    assert not versions.compare_and_set("a", 2, 3)
    versions.forget("a")
