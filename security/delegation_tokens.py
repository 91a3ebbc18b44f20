"""DelegationTokens: the tokens of one server, each a durable row (KIP-48).

Rule: a change holds when its row is durable. A row has no HMAC: that is computed from the token's
id with the server's secret, which is never stored. Tokens that have expired open nothing, and are
removed by `remove_expired`.
Must not know: messages, mechanisms, who may create tokens for others.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kledger.ledger import LedgerStore
from kledger.ledger.record_table import RecordChange, RecordRows, RecordTable, submit_together
from kledger.ledger.row_format import I64, TEXT16, TEXT_REST, RowFormat, RowKey, RowLayout, array
from kledger.runtime.clock import Clock
from kledger.runtime.deferred import Deferred
from kledger.runtime.entropy import Entropy
from kledger.security.delegation_token_state import (
    DelegationToken,
    DelegationTokenConfig,
    DelegationTokensDisabled,
    TooManyDelegationTokens,
    expired,
    new_token,
    renewed,
)
from kledger.security.principal import Principal

PREFIX: Final = b"security/delegation_tokens/"
TOKENS_MAX: Final = 100_000
"""Tokens of one server."""
TOKENS_OF_OWNER_MAX: Final = 1_000
"""Stored tokens of one owner, so that one user cannot take all."""
REMOVED_AT_ONCE_MAX: Final = 1_000
"""Expired tokens that one write removes."""

_PRINCIPAL = RowLayout(Principal, name=TEXT16, principal_type=TEXT16)
_KEYS = RowKey("delegation token", PREFIX, token_id=TEXT_REST)
_TOKENS: RowFormat[DelegationToken] = RowFormat(
    "delegation token",
    {
        1: RowLayout(
            DelegationToken,
            owner=_PRINCIPAL,
            requester=_PRINCIPAL,
            renewers=array(_PRINCIPAL, make=tuple),
            issue_ms=I64,
            max_ms=I64,
            expiry_ms=I64,
        )
    },
    given=("token_id",),
    has_checksum=True,
)


def _decode(key: bytes, row: bytes) -> tuple[str, DelegationToken]:
    (token_id,) = _KEYS.decode(key)
    return token_id, _TOKENS.decode(row, token_id)


_ROWS = RecordRows[str, DelegationToken](
    prefix=PREFIX, encode_key=_KEYS.encode, encode=_TOKENS.encode, decode=_decode
)


class IssuedToken(NamedTuple):
    """A token with its HMAC, which only clients that may see the token get."""

    token: DelegationToken
    hmac: bytes


class DelegationTokens:
    """The tokens of one server."""

    def __init__(
        self, store: LedgerStore, config: DelegationTokenConfig, clock: Clock, entropy: Entropy
    ) -> None:
        """Load the stored tokens. Without a secret they are kept, and open nothing.

        Raises:
            UnreadableRow: a row cannot be read.
        """
        self._config = config
        self._clock = clock
        self._entropy = entropy
        self._ids_by_hmac: dict[bytes, str] = {}
        self._hmacs: dict[str, bytes] = {}
        self._owners: dict[str, Principal] = {}
        self._ids_of_owner: dict[Principal, set[str]] = {}
        self._table = RecordTable(store, _ROWS, self._replayed)
        self._table.load()

    @property
    def is_enabled(self) -> bool:
        """Whether the server has a secret."""
        return bool(self._config.secret_key)

    def all(self) -> Iterable[IssuedToken]:
        """Return the tokens, expired ones too until they are removed.

        Raises:
            DelegationTokensDisabled: the server has no secret.
        """
        self._check_enabled()
        return [
            IssuedToken(token, self._hmacs[token_id])
            for token_id, token in self._table.durable.items()
        ]

    def find(self, token_id: str) -> IssuedToken | None:
        """Return the token with which a client authenticates; None: none, or it has expired."""
        token = self._table.get(token_id)
        if token is None or not self.is_enabled or token.is_expired(self._clock.now_ms()):
            return None
        return IssuedToken(token, self._hmacs[token_id])

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
        if self._table.head_count() >= TOKENS_MAX:
            raise TooManyDelegationTokens(f"there are {TOKENS_MAX} tokens, and no more are created")
        if len(self._ids_of_owner.get(owner, ())) >= TOKENS_OF_OWNER_MAX:
            raise TooManyDelegationTokens(
                f"{owner} has {TOKENS_OF_OWNER_MAX} tokens, and gets no more"
            )
        token = new_token(
            self._config,
            token_id=str(self._entropy.uuid4()),
            owner=owner,
            requester=requester,
            renewers=renewers,
            max_lifetime_ms=max_lifetime_ms,
            now_ms=self._clock.now_ms(),
        )
        await _written(self._table.submit(token.token_id, token))
        return IssuedToken(token, self._config.hmac_of(token.token_id))

    async def renew(self, hmac: bytes, principal: Principal, period_ms: int) -> DelegationToken:
        """Renew the token with that HMAC; `renewed` documents the arguments.

        Raises:
            DelegationTokenRefused: disabled, not found, expired, or the principal may not.
            LedgerError: nothing was changed.
        """
        token = renewed(
            self._with_hmac(hmac),
            self._config,
            principal=principal,
            period_ms=period_ms,
            now_ms=self._clock.now_ms(),
        )
        await _written(self._table.submit(token.token_id, token))
        return token

    async def expire(self, hmac: bytes, principal: Principal, period_ms: int) -> int:
        """Expire the token with that HMAC; return when, in milliseconds since 1970.

        Raises:
            DelegationTokenRefused: disabled, not found, expired, or the principal may not.
            LedgerError: nothing was changed.
        """
        before, now_ms = self._with_hmac(hmac), self._clock.now_ms()
        after = expired(before, principal=principal, period_ms=period_ms, now_ms=now_ms)
        assert before is not None, "an unknown token was expired"
        await _written(self._table.submit(before.token_id, after))
        return now_ms if after is None else after.expiry_ms

    def removals_of(self, owner: Principal) -> list[RecordChange]:
        """Return the changes that remove an owner's tokens, to be written with the user's end."""
        ids = self._ids_of_owner.get(owner, ())
        return [self._table.change(token_id, None) for token_id in ids]

    async def remove_expired(self) -> int:
        """Remove tokens that have expired, as many as one write may; return how many.

        Raises:
            LedgerError: they are still there, and open nothing.
        """
        now_ms = self._clock.now_ms()
        changes: list[RecordChange] = []
        for token_id, token in self._table.durable.items():
            if token.is_expired(now_ms) and self._table.head(token_id) is token:
                changes.append(self._table.change(token_id, None))
                if len(changes) >= REMOVED_AT_ONCE_MAX:
                    break
        if changes:
            await _written(submit_together(changes))
        return len(changes)

    def _check_enabled(self) -> None:
        if not self.is_enabled:
            raise DelegationTokensDisabled("the server has no delegation.token.secret.key")

    def _with_hmac(self, hmac: bytes) -> DelegationToken | None:
        """Return the newest state of the token; it may still be being written."""
        self._check_enabled()
        token_id = self._ids_by_hmac.get(hmac)
        return None if token_id is None else self._table.head(token_id)

    def _replayed(self, token_id: str) -> None:
        """Index a token that holds, or forget one that was removed."""
        token = self._table.get(token_id)
        if token is None:
            self._ids_by_hmac.pop(self._hmacs.pop(token_id, b""), None)
            owner = self._owners.pop(token_id, None)
            if owner is not None:
                ids = self._ids_of_owner[owner]
                ids.discard(token_id)
                if not ids:
                    del self._ids_of_owner[owner]
        elif token_id not in self._owners:
            self._owners[token_id] = token.owner
            self._ids_of_owner.setdefault(token.owner, set()).add(token_id)
            if self.is_enabled:
                hmac = self._hmacs[token_id] = self._config.hmac_of(token_id)
                self._ids_by_hmac[hmac] = token_id


async def _written(change: Deferred[Exception | None]) -> None:
    error = await change
    if error is not None:
        raise error
