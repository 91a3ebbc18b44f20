"""Versions, and the calls as the .proto file lists them."""

import pytest

from kledger.native.errors import NotAllowed
from kledger.native.proto import kledger_native_pb2 as pb
from kledger.native.rpc.protocol import CALLS, SERVICE, agree, connection_options
from kledger.native.rpc.server import STREAMS
from kledger.native.rpc.unary_calls import UNARY


@pytest.mark.parametrize(
    ("client", "server", "version"),
    [((1, 1), (1, 1), 1), ((1, 5), (2, 3), 3), ((2, 3), (1, 5), 3), ((1, 2), (2, 9), 2)],
)
def test_highest_common_version_is_agreed_on(
    client: tuple[int, int], server: tuple[int, int], version: int
) -> None:
    assert version == agree(client=client, server=server)


@pytest.mark.parametrize(
    ("client", "server"), [((1, 2), (3, 4)), ((3, 4), (1, 2)), ((0, 0), (1, 1))]
)
def test_without_a_common_version_both_sides_are_named(
    client: tuple[int, int], server: tuple[int, int]
) -> None:
    with pytest.raises(NotAllowed) as caught:
        agree(client=client, server=server)
    for low, high in (client, server):
        assert f"{low} to {high}" in str(caught.value)


def test_calls_are_those_of_the_service() -> None:
    assert "kledger.native.v1.Broker" == SERVICE
    lookup = CALLS["Lookup"]
    assert f"/{SERVICE}/Lookup" == lookup.path
    assert (pb.LookupRequest, pb.LookupResponse) == (lookup.request, lookup.response)
    assert not lookup.is_stream


def test_every_call_is_served() -> None:
    assert set(CALLS) == {"Hello", *UNARY, *STREAMS}
    assert set(STREAMS) == {name for name, call in CALLS.items() if call.is_stream}


def test_silent_peer_is_pinged_and_has_the_same_time_to_answer() -> None:
    options = dict(connection_options(1_234))
    assert 1_234 == options["grpc.keepalive_time_ms"] == options["grpc.http2.ping_timeout_ms"]
