"""Expressions: regular expressions that clients send, in the syntax of RE2.

Rule: pure; no expression can take more than linear time.
Must not know: what is matched, what comes of it.
"""

from typing import Any, Protocol


class Regex(Protocol):
    """A compiled expression."""

    def fullmatch(self, text: str) -> object | None:
        """Return something if all of the text matches."""
        ...


class InvalidRegex(ValueError):
    """The text is not a regular expression of RE2."""


def compile_regex(text: str) -> Regex:
    """Make an expression that can be used.

    Raises:
        InvalidRegex: with what is wrong, in RE2's words.
    """
    import re2  # noqa: PLC0415 - takes longer than the whole gateway, and few servers need it

    options = re2.Options()
    options.log_errors = False
    try:
        expression: Regex = re2.compile(text, options=options)
    except re2.error as error:
        raise InvalidRegex(_error_text(error)) from None
    return expression


def _error_text(error: Any) -> str:
    """Return what RE2 says, which the library hands on as bytes."""
    said = error.args[0] if error.args else b""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
