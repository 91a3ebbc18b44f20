"""A secret that is logged fails the test that logs it."""

import logging
import sys

import pytest

from tests.shown_secrets import ShownSecrets


def record(line: str) -> logging.LogRecord:
    return logging.LogRecord("kledger", logging.INFO, "", 0, "%s", (line,), sys.exc_info())


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("login of alice with alice-secret", True),
        ("password ann-pw", True),
        ("key s3cret-of-tokens", True),
        ("the secret-plans of alice", False),
        ("no secret", False),
    ],
)
def test_a_line_with_a_secret_is_found(line: str, is_found: bool) -> None:
    shown = ShownSecrets()
    shown.emit(record(line))
    assert is_found is bool(shown.lines)


def test_a_secret_in_a_traceback_is_found() -> None:
    shown = ShownSecrets()
    try:
        int("alice-secret")
    except ValueError:
        shown.emit(record("failed"))
    assert shown.lines
