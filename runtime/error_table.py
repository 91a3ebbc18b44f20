"""ErrorTable: translates exceptions by their class.

Rule: a class without a row has that of its nearest base. Every seam that translates errors has one
table: the ledger, the subscriptions and both façades.
Must not know: the errors, and their translations.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

Translation = TypeVar("Translation")
Default = TypeVar("Default")


class ErrorTable(Generic[Translation]):
    """A table with a row for each class.

    Attributes:
        classes: those that have a row, as `except` takes them.
    """

    __slots__ = ("_rows", "classes")

    def __init__(self, rows: Mapping[type[BaseException], Translation]) -> None:
        self._rows = dict(rows)
        self.classes = tuple(rows)

    def get(self, error: BaseException, default: Default) -> Translation | Default:
        """Return what stands for an error; `default` if neither its class nor a base has a row."""
        for each in type(error).__mro__:
            if each in self._rows:
                return self._rows[each]
        return default
