"""Users: the stored credentials of one server, by user and mechanism.

Rule: a credential holds when its row is durable, and after a restart; it is removed from memory
with its row. An unknown user gets a decoy, made with a secret that is stored beside the
credentials, so that the decoy is the same after a restart and no client can compute it.
Must not know: the messages of a login, access rules.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kledger.ledger import TableStore
from kledger.ledger.record_table import RecordChange, RecordRows, RecordTable, submit_together
from kledger.ledger.row_format import BYTES32, TEXT16, TEXT_REST, U32, RowFormat, RowKey, RowLayout
from kledger.security.credentials import (
    PLAIN,
    PLAIN_HASH,
    ScramCredential,
    ScramMechanism,
    decoy_credential,
)

if TYPE_CHECKING:
    from kledger.runtime.entropy import Entropy

PREFIX: Final = b"security/users/"
SECRET_KEY: Final = b"security/decoy_secret"
SECRET_BYTES: Final = 32
CREDENTIALS_MAX: Final = 100_000
"""Credentials of one server."""

STORED_MECHANISMS: Final = (PLAIN, *(each.sasl_name for each in ScramMechanism))
"""Mechanisms for which there are credentials."""

UserMechanism = tuple[str, str]
"""A user, and the name of a mechanism: of SCRAM, or PLAIN."""

_KEYS: Final = RowKey("user", PREFIX, mechanism=TEXT16, user=TEXT_REST)
_CREDENTIALS: Final[RowFormat[ScramCredential]] = RowFormat(
    "user",
    {
        1: RowLayout(
            ScramCredential, iterations=U32, salt=BYTES32, stored_key=BYTES32, server_key=BYTES32
        )
    },
)


class TooManyUsers(Exception):
    """There are `CREDENTIALS_MAX` credentials."""


class Users:
    """The stored credentials.

    Attributes:
        changes_at_end: returns what is written with the end of a user, whose last credential goes.
    """

    def __init__(self, tables: TableStore, entropy: "Entropy") -> None:
        """Load what is stored.

        Raises:
            UnreadableRow: a row cannot be read.
        """
        self._tables = tables
        self._changing = tables.change_lock()
        self._table = RecordTable(
            tables,
            RecordRows[UserMechanism, ScramCredential](
                prefix=PREFIX, encode_key=_encode_key, encode=_CREDENTIALS.encode, decode=_decode
            ),
        )
        self._table.load()
        stored = tables.get_row(SECRET_KEY)
        self._secret = stored if stored is not None else entropy.token(SECRET_BYTES)
        self._is_secret_stored = stored is not None
        self.changes_at_end: Callable[[str], Sequence[RecordChange]] = lambda _user: ()

    @property
    def names(self) -> list[str]:
        """The users, sorted."""
        return sorted({user for user, _ in self._table.durable})

    def credentials_of(self, user: str) -> dict[str, ScramCredential]:
        """Return the credentials of a user by mechanism, in the order of their names."""
        found = {mechanism: self._table.get((user, mechanism)) for mechanism in STORED_MECHANISMS}
        return {mechanism: each for mechanism, each in found.items() if each is not None}

    def find(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return the credential of a user for a mechanism."""
        return self._table.get((user, mechanism))

    def decoy(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """Return what stands for a user without a credential."""
        return decoy_credential(mechanism, user, self._secret)

    def find_plain(self, user: str) -> tuple[ScramCredential, bool]:
        """Return the credential of a user for PLAIN, or a decoy and False."""
        found = self.find(user, PLAIN)
        return (self.decoy(user, PLAIN_HASH), False) if found is None else (found, True)

    async def alter(self, changes: Iterable[tuple[UserMechanism, ScramCredential | None]]) -> None:
        """Set credentials, or delete them (None): all or none.

        Raises:
            TooManyUsers: nothing was changed.
            LedgerError: nothing was changed.
        """
        changed = dict(changes)
        async with self._changing:
            self._check_count(changed)
            records = [self._table.change(key, record) for key, record in changed.items()]
            if not records:
                return
            await self._store_secret()
            for user in self._ending(changed):
                records += self.changes_at_end(user)
            error = await submit_together(records)
            if error is not None:
                raise error

    def _check_count(self, changed: "dict[UserMechanism, ScramCredential | None]") -> None:
        added = sum(
            record is not None and self._table.head(key) is None for key, record in changed.items()
        )
        if added and self._table.head_count() + added > CREDENTIALS_MAX:
            raise TooManyUsers(f"expected at most {CREDENTIALS_MAX} credentials of users")

    def _ending(self, changed: "dict[UserMechanism, ScramCredential | None]") -> Iterator[str]:
        """Yield the users that lose their last credential."""
        for user in dict.fromkeys(user for user, _ in changed):
            keys = [(user, mechanism) for mechanism in STORED_MECHANISMS]
            before = [self._table.head(key) for key in keys]
            if any(before) and not any(changed.get(key, self._table.head(key)) for key in keys):
                yield user

    async def _store_secret(self) -> None:
        """Keep the secret of the decoys, with the first user: before there are only decoys."""
        if not self._is_secret_stored:
            await self._tables.put_rows([(SECRET_KEY, self._secret)])
            self._is_secret_stored = True


def _encode_key(key: UserMechanism) -> bytes:
    user, mechanism = key
    return _KEYS.encode(mechanism, user)


def _decode(key: bytes, row: bytes) -> tuple[UserMechanism, ScramCredential]:
    mechanism, user = _KEYS.decode(key)
    return (user, mechanism), _CREDENTIALS.decode(row, which=user)
