"""JAAS lines, as Kafka's documents show them."""

import pytest

from kledger.security.jaas import JaasEntry, parse_jaas
from kledger.security.secret_text import SecretText


def test_users_are_the_options_with_their_prefix() -> None:
    entry = parse_jaas(
        "org.apache.kafka.common.security.plain.PlainLoginModule required\n"
        '  username="admin" password="x" user_admin="ad min" user_alice="q\\"uo\\\\te";'
    )
    assert "PlainLoginModule" == entry.module.rpartition(".")[2]
    assert {"admin": "ad min", "alice": 'q"uo\\te'} == entry.users


def test_values_may_stand_without_quotation_marks() -> None:
    assert JaasEntry("M", {"a": "b", "user_c": "d"}) == parse_jaas("M REQUIRED a=b user_c=d;")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "M required",
        "M sometimes;",
        "M required a=hush",
        "M required a hush;",
        'M required a="hush;',
        "M required a=hush a=hush;",
        "M required =hush;",
        "x" * (1 << 20) + "hush",
    ],
)
def test_a_mistake_quotes_nothing_of_the_line(text: str) -> None:
    with pytest.raises(ValueError, match="expected") as refused:
        parse_jaas(text)
    assert "hush" not in str(refused.value)


def test_a_secret_is_used_as_text_and_shown_by_none() -> None:
    secret = SecretText("hush")
    assert secret == "hush"
    assert "hush" not in repr([secret])
