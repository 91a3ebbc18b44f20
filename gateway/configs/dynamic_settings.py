"""Kept settings: how the settings of all things of one kind are altered, whatever the kind.

Rule: what is to be set is checked one by one and as a whole, then stored, then put into force; what
fails on the way changes nothing. Changes come one after another, so that none is lost to another.
Must not know: which settings there are, what they do.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping

from kledger.gateway.configs.settings_table import SettingsTable, merged_settings
from kledger.ledger import LedgerStore


class DynamicSettings(ABC):
    """The settings of all things of one kind; their own part is said by the kind."""

    def __init__(self, store: LedgerStore, prefix: bytes) -> None:
        self._table = SettingsTable[str](store, prefix)
        self._changing = asyncio.Lock()

    @property
    def all(self) -> Mapping[str, Mapping[str, str]]:
        """What is set, by name."""
        return self._table.all

    def of(self, name: str) -> Mapping[str, str]:
        """Return what is set for one thing.

        Raises:
            Refused: INVALID_REQUEST: there is nothing of that name.
        """
        self._check_name(name)
        return self._table.of(name)

    async def alter(
        self, name: str, changes: Mapping[str, str | None], *, replace: bool, validate_only: bool
    ) -> None:
        """Change settings of one thing, or only check the changes; None takes one back.

        Raises:
            Refused: nothing was changed.
            TopicsError: nothing was changed.
        """
        async with self._changing:
            after = merged_settings(self.of(name), changes, self._validated, replace=replace)
            self._validate_all(name, after)
            if not validate_only:
                await self._table.put(name, after)
                self._apply(name)

    @abstractmethod
    def _check_name(self, name: str) -> None:
        """Refuse a name that nothing can have."""

    @abstractmethod
    def _validated(self, setting: str, text: str) -> str:
        """Refuse a text of a setting, or return it as it is stored."""

    @abstractmethod
    def _validate_all(self, name: str, settings: Mapping[str, str]) -> None:
        """Refuse settings that do not go together."""

    @abstractmethod
    def _apply(self, name: str) -> None:
        """Let hold what is set for one thing now."""
