"""Contained faults as tests see them: expected where a test asks for them, a failure elsewhere."""

import logging

LOGGER = "kledger.runtime.containment"


class Contained(logging.Handler):
    """What was contained while a test ran."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []
        self.errors: list[BaseException | None] = []
        self.is_expected = False

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line and its error."""
        self.messages.append(record.getMessage())
        self.errors.append(record.exc_info[1] if record.exc_info else None)
