"""The reference gets what a single node on loopback needs, and its own defaults for the rest."""

from compat_tests.servers.apache_kafka import free_ports


def test_ports_are_free_and_different() -> None:
    first, second = free_ports(2)
    assert first != second
    assert min(first, second) > 1023
