"""Delegation token state: what a token is, and how it is created, renewed and expired (KIP-48).

Rule: the same requests are refused as by Apache Kafka, in the same order: unknown, expired, not
permitted. A token never lives longer than its maximum, which is fixed when it is created. A client
that has its HMAC acts as the owner.
Must not know: clocks, rows, the requests of clients, access rules.
"""

import hmac
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kledger.security.principal import Principal

RENEWERS_MAX: Final = 100
"""Renewers of one token."""
DAY_MS: Final = 24 * 3_600_000


class DelegationTokenRefused(Exception):
    """A request about a token is refused; the class says why."""


class DelegationTokensDisabled(DelegationTokenRefused):
    """The server has no `delegation.token.secret.key`."""


class DelegationTokenNotFound(DelegationTokenRefused):
    """No token has that HMAC."""


class DelegationTokenExpired(DelegationTokenRefused):
    """The token has expired; it cannot be renewed."""


class DelegationTokenOwnerMismatch(DelegationTokenRefused):
    """The principal neither owns the token nor is one of its renewers."""


class TooManyDelegationTokens(DelegationTokenRefused):
    """A limit of tokens or renewers is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenConfig:
    """The settings of tokens, under Kafka's names.

    Attributes:
        secret_key: signs the ids of tokens; empty: there are none. It is never stored, so another
            one invalidates all tokens.
        max_lifetime_ms: the longest life of a token.
        expiry_time_ms: how long a token lives unless it is renewed.
    """

    secret_key: str = field(default="", repr=False)
    max_lifetime_ms: int = 7 * DAY_MS
    expiry_time_ms: int = DAY_MS

    def hmac_of(self, token_id: str) -> bytes:
        """Return the HMAC-SHA512 of a token's id, 64 bytes; it is the token's password."""
        assert self.secret_key, "signing a token without a secret"
        return hmac.digest(self.secret_key.encode(), token_id.encode(), "sha512")


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """One token. Times are milliseconds since 1970.

    Attributes:
        requester: the principal that created it; may differ from the owner (KIP-373).
        max_ms: it is never valid beyond that time.
        expiry_ms: it is valid up to that time, unless it is renewed.
    """

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...] = ()
    issue_ms: int
    max_ms: int
    expiry_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time has passed."""
        return min(self.max_ms, self.expiry_ms) < now_ms

    def may_be_renewed_by(self, principal: Principal) -> bool:
        """Whether a principal may renew and expire it."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: Principal) -> bool:
        """Whether a principal owns, requested or may renew it; it may then see it, as in Kafka."""
        return principal == self.requester or self.may_be_renewed_by(principal)


def scram_password(token_hmac: bytes) -> str:
    """Return the password with which a client authenticates by a token: its HMAC in Base64."""
    return b64encode(token_hmac).decode("ascii")


def new_token(
    config: DelegationTokenConfig,
    *,
    token_id: str,
    owner: Principal,
    requester: Principal,
    renewers: Sequence[Principal],
    max_lifetime_ms: int,
    now_ms: int,
) -> DelegationToken:
    """Return a token that begins now.

    Args:
        config: the limits.
        token_id: unique, and not to be guessed.
        owner: in whose name its holder acts.
        requester: the principal of the request.
        renewers: principals that may renew it, besides the owner.
        max_lifetime_ms: what the client asks for; 0 and less: the server's maximum.
        now_ms: since 1970.

    Raises:
        TooManyDelegationTokens: it has too many renewers.
    """
    if len(renewers) > RENEWERS_MAX:
        raise TooManyDelegationTokens(
            f"expected at most {RENEWERS_MAX} renewers of a token, got {len(renewers)}"
        )
    max_ms = now_ms + _shorter(max_lifetime_ms, config.max_lifetime_ms)
    return DelegationToken(
        token_id=token_id,
        owner=owner,
        requester=requester,
        renewers=tuple(renewers),
        issue_ms=now_ms,
        max_ms=max_ms,
        expiry_ms=min(max_ms, now_ms + config.expiry_time_ms),
    )


def renewed(
    token: DelegationToken | None,
    config: DelegationTokenConfig,
    *,
    principal: Principal,
    period_ms: int,
    now_ms: int,
) -> DelegationToken:
    """Return the token with a later expiry, at most its maximum.

    Args:
        token: None: there is no such token.
        config: the limits.
        principal: of the request.
        period_ms: how long it is to be valid from now on; 0 and less: as long as the server allows.
        now_ms: since 1970.

    Raises:
        DelegationTokenRefused: not found, expired, or the principal may not.
    """
    token = _permitted(token, principal, now_ms)
    expiry_ms = now_ms + _shorter(period_ms, config.expiry_time_ms)
    return replace(token, expiry_ms=min(token.max_ms, expiry_ms))


def expired(
    token: DelegationToken | None, *, principal: Principal, period_ms: int, now_ms: int
) -> DelegationToken | None:
    """Return the token with another expiry, at most its maximum; None: it is removed at once.

    Args:
        token: None: there is no such token.
        principal: of the request.
        period_ms: how long it is still to be valid; below 0: it is removed.
        now_ms: since 1970.

    Raises:
        DelegationTokenRefused: not found, expired, or the principal may not.
    """
    token = _permitted(token, principal, now_ms)
    if period_ms < 0:
        return None
    return replace(token, expiry_ms=min(token.max_ms, now_ms + period_ms))


def _shorter(asked_ms: int, limit_ms: int) -> int:
    return min(asked_ms, limit_ms) if asked_ms > 0 else limit_ms


def _permitted(token: DelegationToken | None, principal: Principal, now_ms: int) -> DelegationToken:
    if token is None:
        raise DelegationTokenNotFound("there is no token with this HMAC")
    if token.is_expired(now_ms):
        raise DelegationTokenExpired(f"token {token.token_id} has expired")
    if not token.may_be_renewed_by(principal):
        raise DelegationTokenOwnerMismatch(
            f"{principal} is neither the owner nor a renewer of token {token.token_id}"
        )
    return token
