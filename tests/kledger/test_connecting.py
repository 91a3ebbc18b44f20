"""A client of a server that runs elsewhere; what it does is in tests/native/contract."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import kledger
from kledger.native.client.operations import OPERATION_TIMEOUT_MS
from kledger.testing import Server


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:9093", "kafka://127.0.0.1:9093", "kledger://", "kledger://host",
     "kledger://a:1,", "kledger://a:1,b", "kledger://a:1,a:1",
     "kledger://host:x", "kledger://:9093", "kledger://host:70000", None],
)  # fmt: skip
def test_what_is_no_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(kledger.InvalidArgument):
        kledger.connect(url)


@pytest.mark.parametrize(
    "given", [{"keepalive_ms": 0}, {"keepalive_ms": 1 << 31}, {"partition_refresh_ms": "1"}]
)
def test_bad_options_are_refused_at_once(given: dict[str, Any]) -> None:
    with pytest.raises(kledger.InvalidArgument):
        kledger.connect("kledger://127.0.0.1:9093", **given)


async def test_any_of_several_addresses_may_answer() -> None:
    async with Server(native="127.0.0.1:0") as server:
        for url in (f"127.0.0.1:1,{server.native_address}", f"{server.native_address},127.0.0.1:1"):
            async with kledger.connect(f"kledger://{url}", keepalive_ms=60_000) as client:
                assert [] == await client.topics()


@pytest.mark.parametrize(
    "url", ["kledger://127.0.0.1:9093", "kledger://[::1]:9093/", "kledger://a:1,[::1]:2,c:3/"]
)
def test_making_a_client_connects_to_nothing(url: str) -> None:
    assert isinstance(kledger.connect(url), kledger.Client)


@pytest.mark.parametrize("make", [kledger.connect, kledger.embedded])
def test_operation_timeout_is_the_clients_unless_it_is_given(make: Callable[..., object]) -> None:
    signature = inspect.signature(make)
    assert OPERATION_TIMEOUT_MS == signature.parameters["operation_timeout_ms"].default


@pytest.mark.parametrize("wrong", [0, -1, 1.5, None])
def test_operation_timeout_that_cannot_be_is_refused_at_once(wrong: int) -> None:
    with pytest.raises(kledger.InvalidArgument, match="operation_timeout_ms"):
        kledger.connect("kledger://127.0.0.1:9093", operation_timeout_ms=wrong)
    with pytest.raises(kledger.InvalidArgument, match="operation_timeout_ms"):
        kledger.embedded(None, operation_timeout_ms=wrong)
