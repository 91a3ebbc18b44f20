"""Secrets in the log, as tests see them: passwords and keys of tests look like no other words."""

import logging
import re

SECRET = re.compile(r"\b[a-z]+-(?:secret|pw)\b|\bhush\b|s3cret|passw0rd|\bpencil\b")
"""The passwords and keys that tests give to servers and clients."""


class ShownSecrets(logging.Handler):
    """The lines with a secret that were logged while a test ran."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line that shows a secret, or whose traceback does."""
        text = self.format(record)
        if SECRET.search(text):
            self.lines.append(text)
