"""Where a call comes from, in gRPC's words."""

import pytest

from kledger.native.rpc.sessions import _host_of


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:4711", "127.0.0.1"),
        ("ipv6:[::1]:4711", "::1"),
        ("ipv6:%5B::1%5D:4711", "::1"),
        ("ipv6:%5Bfe80::1%25eth0%5D:4711", "fe80::1%eth0"),
        ("unix:", "unix:"),
    ],
)
def test_the_host_is_the_address_without_its_port(peer: str, host: str) -> None:
    assert host == _host_of(peer)
