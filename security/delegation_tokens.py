"""DelegationTokens: the tokens of one server, each a durable row (KIP-48).

Rule: a change holds when its row is durable. A row does not contain the HMAC, which is computed
from the token's id and the server's secret, which is never stored. It contains the HMAC's hash,
which shows whether the secret has changed, and SCRAM credentials, with which clients log in. A
token that has expired is refused; `remove_expired` removes it.
Must not know: messages, the steps of a login, access rules.
"""

from base64 import urlsafe_b64encode
from collections.abc import Collection, Sequence
from dataclasses import replace
from hashlib import sha256
from hmac import compare_digest
from itertools import islice
from typing import Final, NamedTuple

from kledger.ledger import TableStore
from kledger.ledger.record_table import RecordChange, RecordRows, RecordTable, submit_together
from kledger.ledger.row_format import (
    BYTES32,
    I64,
    TEXT16,
    TEXT_REST,
    U32,
    RowFormat,
    RowKey,
    RowLayout,
    array,
)
from kledger.runtime.blocking import BlockingRunner
from kledger.runtime.clock import Clock
from kledger.runtime.deferred import Deferred
from kledger.runtime.entropy import Entropy
from kledger.security.credentials import (
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    make_credential,
)
from kledger.security.delegation_token_state import (
    DelegationToken,
    DelegationTokenConfig,
    DelegationTokensDisabled,
    TooManyDelegationTokens,
    expired,
    new_token,
    renewed,
    scram_password,
)
from kledger.security.principal import Principal
from kledger.security.users import Users

PREFIX: Final = b"security/delegation_tokens/"
TOKENS_MAX: Final = 100_000
"""Tokens of one server."""
TOKENS_OF_OWNER_MAX: Final = 1_000
"""Stored tokens of one owner, so that one user cannot take all."""
REMOVED_AT_ONCE_MAX: Final = 1_000
"""Expired tokens that one write removes."""


class StoredToken(NamedTuple):
    """A token, and what proves that a client has its HMAC.

    Attributes:
        hmac_hash: SHA-256 of the HMAC.
        scram_sha_256, scram_sha_512: credentials of which the HMAC in Base64 is the password.
    """

    token: DelegationToken
    hmac_hash: bytes
    scram_sha_256: ScramCredential
    scram_sha_512: ScramCredential


_PRINCIPAL = RowLayout(Principal, name=TEXT16, principal_type=TEXT16)
_TOKEN = RowLayout(
    DelegationToken,
    token_id=TEXT16,
    owner=_PRINCIPAL,
    requester=_PRINCIPAL,
    renewers=array(_PRINCIPAL),
    issue_ms=I64,
    max_ms=I64,
    expiry_ms=I64,
)
_CREDENTIAL = RowLayout(
    ScramCredential, salt=BYTES32, stored_key=BYTES32, server_key=BYTES32, iterations=U32
)
_KEYS = RowKey("delegation token", PREFIX, token_id=TEXT_REST)
_TOKENS: RowFormat[StoredToken] = RowFormat(
    "delegation token",
    {
        1: RowLayout(
            StoredToken,
            token=_TOKEN,
            hmac_hash=BYTES32,
            scram_sha_256=_CREDENTIAL,
            scram_sha_512=_CREDENTIAL,
        )
    },
    has_checksum=True,
)


def _decode(key: bytes, row: bytes) -> tuple[str, StoredToken]:
    (token_id,) = _KEYS.decode(key)
    return token_id, _TOKENS.decode(row, which=token_id)


_ROWS = RecordRows[str, StoredToken](
    prefix=PREFIX, encode_key=_KEYS.encode, encode=_TOKENS.encode, decode=_decode
)


class IssuedToken(NamedTuple):
    """A token with its HMAC, which only clients that may see the token get."""

    token: DelegationToken
    hmac: bytes


class DelegationTokens:
    """The tokens of one server."""

    def __init__(
        self,
        tables: TableStore,
        config: DelegationTokenConfig,
        *,
        clock: Clock,
        entropy: Entropy,
        pool: BlockingRunner,
    ) -> None:
        """Load the stored tokens. Those of another secret are void, and all without one.

        Args:
            tables: keep the rows.
            config: limits and the secret.
            clock: for the times of tokens.
            entropy: for ids and salts.
            pool: derives credentials.

        Raises:
            UnreadableRow: a row cannot be read.
        """
        self._config = config
        self._clock = clock
        self._entropy = entropy
        self._pool = pool
        self._issued: dict[str, IssuedToken] = {}
        self._ids_by_hmac: dict[bytes, str] = {}
        self._owners: dict[str, Principal] = {}
        self._ids_of_owner: dict[Principal, set[str]] = {}
        self._changing = tables.change_lock()
        self._table = RecordTable(tables, _ROWS, self._replayed)
        self._table.load()

    @property
    def is_enabled(self) -> bool:
        """Whether the server has a secret."""
        return bool(self._config.secret_key)

    def all(self) -> Collection[IssuedToken]:
        """Return the tokens, expired ones too until they are removed.

        Raises:
            DelegationTokensDisabled: the server has no secret.
        """
        self._check_enabled()
        return self._issued.values()

    def find(self, token_id: str, now_ms: int) -> StoredToken | None:
        """Return the token with which a client logs in; None: none, or it has expired."""
        if token_id not in self._issued:
            return None
        found = self._table.get(token_id)
        return None if found is None or found.token.is_expired(now_ms) else found

    def with_password(self, token_id: str, password: str, now_ms: int) -> DelegationToken | None:
        """Return the token that a client proves to have by its password, `scram_password`.

        None: there is no such token, it has expired, or the password is another one.
        """
        found = self.find(token_id, now_ms)
        if found is None:
            return None
        expected = scram_password(self._config.hmac_of(token_id))
        return found.token if compare_digest(expected.encode(), password.encode()) else None

    async def create(
        self,
        *,
        owner: Principal,
        requester: Principal,
        renewers: Sequence[Principal],
        max_lifetime_ms: int,
    ) -> IssuedToken:
        """Create a token; `new_token` documents the arguments.

        Raises:
            DelegationTokenRefused: there is no secret, or a limit is reached.
            LedgerError: nothing was changed.
        """
        self._check_enabled()
        token = new_token(
            self._config,
            token_id=self._new_id(),
            owner=owner,
            requester=requester,
            renewers=renewers,
            max_lifetime_ms=max_lifetime_ms,
            now_ms=self._clock.now_ms(),
        )
        hmac, salt = self._config.hmac_of(token.token_id), self._entropy.token(SALT_BYTES)
        async with self._changing:
            self._check_room(owner)
            record = await self._pool.run(_stored_token, token, hmac, salt)
            await _written(self._table.submit(token.token_id, record))
        return IssuedToken(token, hmac)

    async def renew(self, hmac: bytes, principal: Principal, period_ms: int) -> DelegationToken:
        """Renew the token with that HMAC, and return it; `renewed` documents the arguments.

        Raises:
            DelegationTokenRefused: disabled, not found, expired, or the principal may not.
            LedgerError: nothing was changed.
        """
        async with self._changing:
            found, now_ms = self._with_hmac(hmac), self._clock.now_ms()
            token = renewed(
                None if found is None else found.token,
                self._config,
                principal=principal,
                period_ms=period_ms,
                now_ms=now_ms,
            )
            assert found is not None, "an unknown token was renewed"
            await _written(self._table.submit(token.token_id, found._replace(token=token)))
            return token

    async def expire(self, hmac: bytes, principal: Principal, period_ms: int) -> DelegationToken:
        """Expire the token with that HMAC; return it with the time when it expires.

        Raises:
            DelegationTokenRefused: disabled, not found, expired, or the principal may not.
            LedgerError: nothing was changed.
        """
        async with self._changing:
            found, now_ms = self._with_hmac(hmac), self._clock.now_ms()
            token = expired(
                None if found is None else found.token,
                principal=principal,
                period_ms=period_ms,
                now_ms=now_ms,
            )
            assert found is not None, "an unknown token was expired"
            after = None if token is None else found._replace(token=token)
            await _written(self._table.submit(found.token.token_id, after))
        return replace(found.token, expiry_ms=now_ms) if token is None else token

    def removals_of(self, owner: Principal) -> list[RecordChange]:
        """Return the changes that remove an owner's tokens, to be written with the user's end.

        They are removed without the secret, too.
        """
        ids = self._ids_of_owner.get(owner, ())
        return [self._table.change(token_id, None) for token_id in ids]

    async def remove_expired(self) -> int:
        """Remove tokens that have expired, as many as one write may; return how many.

        Raises:
            LedgerError: they are still stored, but no client can log in with them.
        """
        if not self._expired():
            return 0
        async with self._changing:
            ids = self._expired()
            if ids:
                await _written(submit_together([self._table.change(each, None) for each in ids]))
            return len(ids)

    def _expired(self) -> list[str]:
        """Return tokens that have expired, as many as one write may remove."""
        now_ms = self._clock.now_ms()
        ids = (
            token_id
            for token_id, stored in self._table.durable.items()
            if stored.token.is_expired(now_ms)
        )
        return list(islice(ids, REMOVED_AT_ONCE_MAX))

    def _new_id(self) -> str:
        """Return an id in the form of Kafka's, which begins with no hyphen, as options do."""
        while True:
            token_id = urlsafe_b64encode(self._entropy.uuid4().bytes).rstrip(b"=").decode("ascii")
            if not token_id.startswith("-"):
                return token_id

    def _check_enabled(self) -> None:
        if not self.is_enabled:
            raise DelegationTokensDisabled("the server has no delegation.token.secret.key")

    def _check_room(self, owner: Principal) -> None:
        if len(self._ids_of_owner.get(owner, ())) >= TOKENS_OF_OWNER_MAX:
            raise TooManyDelegationTokens(
                f"{owner} has {TOKENS_OF_OWNER_MAX} tokens, and gets no more"
            )
        if self._table.head_count() >= TOKENS_MAX:
            raise TooManyDelegationTokens(f"there are {TOKENS_MAX} tokens, and no more are created")

    def _with_hmac(self, hmac: bytes) -> StoredToken | None:
        """Return the newest state of the token; it may still be being written."""
        self._check_enabled()
        token_id = self._ids_by_hmac.get(hmac)
        return None if token_id is None else self._table.head(token_id)

    def _replayed(self, token_id: str) -> None:
        """Index a token that holds, or forget one that was removed."""
        stored = self._table.get(token_id)
        if stored is None:
            self._forget(token_id)
            return
        owner = self._owners[token_id] = stored.token.owner
        self._ids_of_owner.setdefault(owner, set()).add(token_id)
        hmac = self._config.hmac_of(token_id) if self.is_enabled else b""
        if compare_digest(_hash(hmac), stored.hmac_hash):
            self._issued[token_id] = IssuedToken(stored.token, hmac)
            self._ids_by_hmac[hmac] = token_id

    def _forget(self, token_id: str) -> None:
        issued = self._issued.pop(token_id, None)
        if issued is not None:
            del self._ids_by_hmac[issued.hmac]
        owner = self._owners.pop(token_id, None)
        if owner is not None:
            ids = self._ids_of_owner[owner]
            ids.remove(token_id)
            if not ids:
                del self._ids_of_owner[owner]


def _hash(hmac: bytes) -> bytes:
    return sha256(hmac).digest()


def _stored_token(token: DelegationToken, hmac: bytes, salt: bytes) -> StoredToken:
    """Derive the credentials of a new token; takes milliseconds, in a thread."""
    password = scram_password(hmac)
    scram_sha_256, scram_sha_512 = (
        make_credential(mechanism, password, salt, ITERATIONS_MIN)
        for mechanism in (ScramMechanism.SHA_256, ScramMechanism.SHA_512)
    )
    return StoredToken(token, _hash(hmac), scram_sha_256, scram_sha_512)


async def _written(change: Deferred[Exception | None]) -> None:
    error = await change
    if error is not None:
        raise error


def open_users(
    tables: TableStore,
    config: DelegationTokenConfig,
    *,
    clock: Clock,
    entropy: Entropy,
    pool: BlockingRunner,
) -> tuple[Users, DelegationTokens]:
    """Load the users and their tokens, which go with the users.

    Raises:
        UnreadableRow: a row cannot be read.
    """
    tokens = DelegationTokens(tables, config, clock=clock, entropy=entropy, pool=pool)
    users = Users(tables, entropy)
    users.changes_at_end = lambda user: tokens.removals_of(Principal(user))
    return users, tokens
