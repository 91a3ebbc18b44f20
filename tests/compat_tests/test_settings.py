"""Underscores in names become dots; names with dots stay."""

from compat_tests.settings import dotted


def test_underscores_become_dots() -> None:
    assert dotted({"group_id": 1, "log.retention.ms": "a_b"}) == {
        "group.id": 1,
        "log.retention.ms": "a_b",
    }
