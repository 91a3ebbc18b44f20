"""Expressions of clients: RE2's syntax, whole texts, no text that takes for ever."""

import pytest

from kledger.gateway.regex import InvalidRegex, compile_regex


@pytest.mark.parametrize("text", ["(", "[", "a(?=b)", r"(a)\1", "*"])
def test_other_syntax_than_re2_is_refused(text: str) -> None:
    with pytest.raises(InvalidRegex) as error:
        compile_regex(text)
    assert str(error.value), "RE2 says what is wrong"


@pytest.mark.parametrize(
    ("text", "subject", "is_match"),
    [
        ("orders.*", "orders-new", True),
        ("order", "orders", False),
        ("(?i)mixed", "MIXED", True),
        (".*ß.", "grüße", True),
        ("(a*)*b", "a" * 200, False),  # keeps an engine that backtracks busy for ages
    ],
)
def test_whole_texts_match(text: str, subject: str, is_match: bool) -> None:
    assert is_match is (compile_regex(text).fullmatch(subject) is not None)
