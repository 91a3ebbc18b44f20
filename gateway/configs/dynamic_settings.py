"""Dynamic settings: alters settings of named things (topics, groups, brokers) at runtime.

Rule: a setting is checked alone and with the others, then stored; it takes effect when its row
is durable, by the same function as at a start. A change that fails changes nothing. Changes are
made one at a time, so that none overwrites another.
Must not know: which settings there are, what they do.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from kledger.gateway.configs.settings_table import SettingsTable, merged_settings
from kledger.ledger import TableStore


class DynamicSettings(ABC):
    """The settings of all things of one kind; a subclass calls `_load` when it is complete."""

    def __init__(self, store: TableStore, prefix: bytes) -> None:
        self._table = SettingsTable[str](store, prefix, self._apply)
        self._changing = store.change_lock()

    @property
    def all(self) -> Mapping[str, Mapping[str, str]]:
        """What is set, by name."""
        return self._table.all

    def of(self, name: str) -> Mapping[str, str]:
        """Return what is set for one thing.

        Raises:
            ApiError: INVALID_REQUEST: nothing can have that name.
        """
        self._check_name(name)
        return self._table.of(name)

    async def alter(
        self, name: str, changes: Mapping[str, str | None], *, replace: bool, validate_only: bool
    ) -> None:
        """Change settings of one thing, or only check the changes; None takes one back.

        Raises:
            ApiError: nothing was changed.
            TopicsError: nothing was changed.
        """
        async with self._changing:
            after = merged_settings(self.of(name), changes, self._validated, replace=replace)
            self._validate_all(name, after)
            if not validate_only:
                await self._table.put(name, after)

    def _load(self) -> None:
        """Let everything that is stored take effect.

        Raises:
            UnreadableRow: a row cannot be read.
        """
        self._table.load()

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
        """Let what is set for one thing take effect."""
