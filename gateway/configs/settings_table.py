"""Settings table: what was set, by the name of what it was set for, in memory and in rows.

Rule: a setting holds when its row is durable, and after a restart; a name without settings is
forgotten. A table has so many names and no more, and a row has its size.
Must not know: which settings there are, what they do.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from kledger.gateway.api_errors import ApiError
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerError, LedgerStore
from kledger.ledger.row_format import NO_VERSION, TEXT_REST, RowFormat, RowKey, json_rest
from kledger.topics.partition.results import from_ledger_error

NAMES_MAX: Final = 100_000
"""Names of one table; what is set for one more is POLICY_VIOLATION."""
ROW_BYTES_MAX: Final = 64 * 1024
"""The settings of one name, as they are stored, with the name; more are POLICY_VIOLATION."""

V = TypeVar("V")

_SETTINGS: RowFormat[Any] = RowFormat("settings", {NO_VERSION: json_rest()})


class SettingsTable(Generic[V]):
    """The settings of all things of one kind."""

    def __init__(self, store: LedgerStore, prefix: bytes) -> None:
        self._store = store
        self._keys = RowKey("settings", prefix, name=TEXT_REST)
        self._settings: dict[str, dict[str, V]] = {}
        for key, row in store.scan_rows(prefix):
            (name,) = self._keys.decode(key)
            self._settings[name] = _SETTINGS.decode(row, which=name)

    @property
    def all(self) -> Mapping[str, Mapping[str, V]]:
        """What is set, by name."""
        return self._settings

    def of(self, name: str) -> Mapping[str, V]:
        """Return what is set for one name."""
        return self._settings.get(name, {})

    async def put(self, name: str, settings: Mapping[str, V]) -> None:
        """Replace what is set for one name.

        Raises:
            ApiError: POLICY_VIOLATION: a limit is reached; nothing was changed.
            TopicsError: nothing was changed.
        """
        key = self._keys.encode(name)
        row = _SETTINGS.encode(dict(settings)) if settings else None
        if row is not None:
            self._check_limits(name, len(key) + len(row))
        try:
            await self._store.put_rows([(key, row)])
        except LedgerError as error:
            raise from_ledger_error(error) from error
        if settings:
            self._settings[name] = dict(settings)
        else:
            self._settings.pop(name, None)

    def _check_limits(self, name: str, size: int) -> None:
        if size > ROW_BYTES_MAX:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"expected at most {ROW_BYTES_MAX} bytes of settings, got {size}",
            )
        if name not in self._settings and len(self._settings) >= NAMES_MAX:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION, f"expected settings of at most {NAMES_MAX} names"
            )


def merged_settings(
    before: Mapping[str, str],
    changes: Mapping[str, str | None],
    validate: Callable[[str, str], str],
    *,
    replace: bool,
) -> dict[str, str]:
    """Return settings after changes; None takes one back.

    Args:
        before: what is set now.
        changes: texts by name of the setting.
        validate: refuses a text of a setting, or returns it as it is to be stored.
        replace: what is not named is taken back.
    """
    after = {} if replace else dict(before)
    for name, text in changes.items():
        if text is None:
            after.pop(name, None)
        else:
            after[name] = validate(name, text)
    return after
