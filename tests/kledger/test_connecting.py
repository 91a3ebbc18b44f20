"""A client of a server that runs elsewhere; what it does is in tests/native/contract."""

import pytest

import kledger


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:9093", "kafka://127.0.0.1:9093", "kledger://", "kledger://host",
     "kledger://host:x", "kledger://:9093", "kledger://host:70000", None],
)  # fmt: skip
def test_what_is_no_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(kledger.InvalidArgument):
        kledger.connect(url)


@pytest.mark.parametrize("url", ["kledger://127.0.0.1:9093", "kledger://[::1]:9093/"])
def test_making_a_client_connects_to_nothing(url: str) -> None:
    assert isinstance(kledger.connect(url), kledger.Client)
