"""Settings table: the settings of named things of one kind, in memory and in rows.

Rule: a setting takes effect when its row is durable, and after a restart; a name without settings
has no row. A table has a limit of names, and a row a limit of bytes.
Must not know: which settings there are, what they do.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from kledger.gateway.api_errors import ApiError
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerError, TableStore
from kledger.ledger.record_table import RecordRows, RecordTable
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

    def __init__(
        self, store: TableStore, prefix: bytes, on_replay: Callable[[str], None] | None = None
    ) -> None:
        """Open an empty table; `load` fills it.

        Args:
            store: keeps the rows.
            prefix: of the keys of this table's rows.
            on_replay: called with a name when its settings have changed, and for each at the start.
        """
        self._keys = RowKey("settings", prefix, name=TEXT_REST)
        rows = RecordRows[str, dict[str, V]](
            prefix=prefix, encode_key=self._keys.encode, encode=_encode, decode=self._decode
        )
        self._records = RecordTable(store, rows, on_replay)

    def load(self) -> None:
        """Replay what is stored.

        Raises:
            UnreadableRow: a row cannot be read.
        """
        self._records.load()

    @property
    def all(self) -> Mapping[str, Mapping[str, V]]:
        """What is set, by name."""
        return self._records.durable

    def of(self, name: str) -> Mapping[str, V]:
        """Return what is set for one name."""
        return self._records.get(name) or {}

    async def put(self, name: str, settings: Mapping[str, V]) -> None:
        """Replace what is set for one name.

        Raises:
            ApiError: POLICY_VIOLATION: a limit is reached; nothing was changed.
            TopicsError: nothing was changed.
        """
        after = dict(settings) or None
        if after is not None:
            self._check_limits(name, len(self._keys.encode(name)) + len(_encode(after)))
        error = await self._records.submit(name, after)
        if isinstance(error, LedgerError):
            raise from_ledger_error(error) from error
        if error is not None:
            raise error

    def _decode(self, key: bytes, row: bytes) -> tuple[str, dict[str, V]]:
        (name,) = self._keys.decode(key)
        return name, _SETTINGS.decode(row, which=name)

    def _check_limits(self, name: str, size: int) -> None:
        if size > ROW_BYTES_MAX:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"expected at most {ROW_BYTES_MAX} bytes of settings, got {size}",
            )
        if name not in self.all and len(self.all) >= NAMES_MAX:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION, f"expected settings of at most {NAMES_MAX} names"
            )


def _encode(settings: Mapping[str, object]) -> bytes:
    return _SETTINGS.encode(settings)


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
