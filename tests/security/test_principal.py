"""Principals are written as Kafka's tools write them."""

import pytest

from kledger.security.principal import ANONYMOUS, Principal, parse_principal


@pytest.mark.parametrize(
    ("text", "principal"),
    [
        ("User:alice", Principal("alice")),
        ("User:CN=a:b,O=x", Principal("CN=a:b,O=x")),
        ("Group:a", Principal("a", "Group")),
        ("User:ANONYMOUS", ANONYMOUS),
    ],
)
def test_text_and_principal(text: str, principal: Principal) -> None:
    assert principal == parse_principal(text)
    assert text == str(principal)


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice", ":"])
def test_text_that_is_no_principal(text: str) -> None:
    with pytest.raises(ValueError, match="expected TYPE:NAME"):
        parse_principal(text)
