"""Regular expressions of clients, in the syntax of RE2.

Rule: pure; no expression takes more than linear time.
Must not know: what is matched.
"""

from typing import Any, Protocol


class Regex(Protocol):
    """A compiled expression."""

    def fullmatch(self, text: str) -> object | None:
        """Return a match if all of the text matches, otherwise None."""
        ...


class InvalidRegex(ValueError):
    """The text is not a regular expression of RE2."""


def compile_regex(text: str) -> Regex:
    """Compile an expression.

    Raises:
        InvalidRegex: with the message of RE2.
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
    """Return the message of RE2, which the library passes as bytes."""
    message = error.args[0] if error.args else b""
    return message.decode(errors="replace") if isinstance(message, bytes) else str(message)
