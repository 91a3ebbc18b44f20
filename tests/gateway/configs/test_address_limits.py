"""Limits of single addresses, as they are written."""

import pytest

from kledger.gateway.configs.address_limits import is_address, parse_overrides


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("127.0.0.1:5", {"127.0.0.1": 5}),
        (" 127.0.0.1 : 5 , ::1:0,", {"127.0.0.1": 5, "::1": 0}),
        ("127.0.0.1:5,127.0.0.1:6", {"127.0.0.1": 6}),
    ],
)
def test_overrides_are_read(text: str, found: dict[str, int]) -> None:
    assert found == parse_overrides(text)


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:x", "host:1", "::1", ":3"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected address:count"):
        parse_overrides(text)


def test_an_address_has_one_spelling() -> None:
    assert all(map(is_address, ("10.0.0.1", "::1", "fe80::1", "2001:db8::2:1")))
    others = ("", "10.1", "010.0.0.1", "0:0:0:0:0:0:0:1", "FE80::1", "localhost", "10.0.0.1\0")
    assert not any(map(is_address, others))
