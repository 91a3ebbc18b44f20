"""Authentication state: what a client of a listener with SASL may send, until and after its login.

Rule: before a login ends, only ApiVersions, SaslHandshake and tokens are permitted, in that order,
few and small. A client whose session has an end may log in again (KIP-368), as the same principal
with the same mechanism; after that end it may do nothing else. Whatever is not permitted ends the
connection.
Must not know: sockets, clocks, how a mechanism decides.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kledger.gateway.wire.header import API_VERSIONS_KEY
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import (
    Authenticated,
    AuthenticationFailed,
    Challenge,
    MakeMechanism,
    NeedWork,
    SaslMechanism,
    Step,
)

HANDSHAKE_KEY: Final = 17
AUTHENTICATE_KEY: Final = 36
FRAME_BYTES_MAX: Final = 64 * 1024
"""Of a request before the end of a login."""
LOGIN_TIMEOUT_MS: Final = 10_000
"""For a whole login, with the handshake of TLS before it."""
ROUND_TRIPS_MAX: Final = 8
"""Requests of one login."""
LOGIN_INTERVAL_MS: Final = 1_000
"""A client that is logged in may begin another login after this time, as in Apache Kafka."""
RAW_TOKENS_VERSION: Final = 0
"""Of SaslHandshake: the tokens that follow are frames without a header."""


class NotPermitted(Exception):
    """The client sent what it may not send now; its connection ends, and the log says why."""


class Stage(Enum):
    """How far a login is."""

    BEGINNING = auto()
    """ApiVersions and SaslHandshake are permitted; the latter leads to TOKENS."""
    TOKENS = auto()
    """A mechanism is chosen; the client sends tokens until it is AUTHENTICATED or FAILED."""
    AUTHENTICATED = auto()
    """Every request is permitted while the session lasts; SaslHandshake leads to TOKENS again."""
    FAILED = auto()
    """Nothing is permitted."""


class Action(Enum):
    """What a request is to a login."""

    ORDINARY = auto()
    """Its handler answers it."""
    HANDSHAKE = auto()
    TOKEN = auto()


@dataclass(frozen=True, slots=True)
class TokenAnswer:
    """What the client gets for a token."""

    token: bytes
    session_lifetime_ms: int = 0
    """How long the session lasts that begins now; 0: as long as the connection."""


class AuthenticationState:
    """The logins of one connection.

    Attributes:
        mechanism_name: of the login that is under way, or of the last one.
        has_raw_tokens: the next frame is a token without a header.
        principal: of the last login that succeeded.
        is_token: whether that one was with a delegation token.
    """

    __slots__ = (
        "_begun_ms",
        "_mechanism",
        "_mechanisms",
        "_mistake",
        "_round_trips",
        "_session_ends_ms",
        "_session_max_ms",
        "has_raw_tokens",
        "is_token",
        "mechanism_name",
        "principal",
        "stage",
    )

    def __init__(
        self, mechanisms: Mapping[str, MakeMechanism], session_max_ms: Callable[[str], int]
    ) -> None:
        """Begin the first login.

        Args:
            mechanisms: those that the listener offers, by name.
            session_max_ms: returns `connections.max.reauth.ms` by mechanism; 0: no limit.
        """
        self._mechanisms = mechanisms
        self._session_max_ms = session_max_ms
        self._mechanism: SaslMechanism | None = None
        self._mistake: str | None = None
        self._round_trips = 0
        self._begun_ms: int | None = None
        self._session_ends_ms: int | None = None
        self.stage = Stage.BEGINNING
        self.mechanism_name = ""
        self.has_raw_tokens = False
        self.principal: Principal | None = None
        self.is_token = False

    @property
    def offered(self) -> list[str]:
        """The names of the mechanisms that the listener offers."""
        return list(self._mechanisms)

    @property
    def is_logging_in(self) -> bool:
        """Whether a login is under way."""
        return self.stage is Stage.BEGINNING or self.stage is Stage.TOKENS

    def admit(self, key: int, size: int, now_ms: int) -> Action:
        """Decide what to do with a request.

        Args:
            key: of the request.
            size: of its frame, in bytes.
            now_ms: monotonic.

        Raises:
            NotPermitted: the connection ends.
        """
        if self.stage is Stage.AUTHENTICATED:
            return self._admit_in_session(key, size, now_ms)
        self._count(size)
        if self.stage is Stage.BEGINNING:
            if key == API_VERSIONS_KEY:
                return Action.ORDINARY
            if key == HANDSHAKE_KEY:
                return Action.HANDSHAKE
        elif self.stage is Stage.TOKENS and key == AUTHENTICATE_KEY and not self.has_raw_tokens:
            return Action.TOKEN
        raise NotPermitted(f"a request with key {key} in the middle of a login ({self.stage.name})")

    def admit_raw(self, size: int) -> None:
        """Decide on a token without a header.

        Raises:
            NotPermitted: the connection ends.
        """
        assert self.has_raw_tokens, "a token without a header, and none was announced"
        self._count(size)

    def _admit_in_session(self, key: int, size: int, now_ms: int) -> Action:
        if key == HANDSHAKE_KEY and self._may_begin_again(now_ms):
            self._round_trips = 0
            self._begun_ms = now_ms
            self._count(size)
            return Action.HANDSHAKE
        if self._session_ends_ms is not None and now_ms >= self._session_ends_ms:
            raise NotPermitted("the session has ended, and the client did not log in again")
        return Action.ORDINARY

    def _may_begin_again(self, now_ms: int) -> bool:
        """Return whether another login may begin: in a session with an end, and not too soon."""
        if self._session_ends_ms is None:
            return False
        return self._begun_ms is None or now_ms - self._begun_ms >= LOGIN_INTERVAL_MS

    def _count(self, size: int) -> None:
        self._round_trips += 1
        if self._round_trips > ROUND_TRIPS_MAX:
            raise NotPermitted(f"more than {ROUND_TRIPS_MAX} requests for one login")
        if size > FRAME_BYTES_MAX:
            raise NotPermitted(f"a request of {size} bytes before the end of a login")

    def choose(self, mechanism: str, version: int, wall_ms: int) -> bool:
        """Take the mechanism of a handshake; return whether the listener offers it.

        Args:
            mechanism: the name that the client sent.
            version: of the handshake.
            wall_ms: now, by the wall clock.
        """
        make = self._mechanisms.get(mechanism)
        if make is None:
            self.stage = Stage.FAILED
            return False
        if self.principal is not None and mechanism != self.mechanism_name:
            self._mistake = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for "
                f"re-authentication of mechanism '{self.mechanism_name}'"
            )
        else:
            self.mechanism_name = mechanism
        self._mechanism = make(wall_ms)
        self.has_raw_tokens = version == RAW_TOKENS_VERSION
        self.stage = Stage.TOKENS
        return True

    def evaluate(self, token: bytes) -> Step:
        """Decide on a token of the client.

        Raises:
            AuthenticationFailed: the login has failed.
            MalformedToken: likewise, and the client gets no answer.
        """
        assert self._mechanism is not None, "a token before a mechanism was chosen"
        if self._mistake is not None:
            raise AuthenticationFailed(self._mistake)
        return self._mechanism.evaluate(token)

    def settle(self, step: Challenge | Authenticated, *, now_ms: int, wall_ms: int) -> TokenAnswer:
        """Take the step that follows from a token; return what the client gets.

        Raises:
            AuthenticationFailed: the client logged in as another principal than before.
        """
        assert not isinstance(step, NeedWork), "the work of a step was not done"
        if isinstance(step, Challenge):
            return TokenAnswer(step.token)
        if self.principal not in (None, step.principal):
            raise AuthenticationFailed(
                "Cannot change principals during re-authentication from "
                f"{self.principal} to {step.principal}"
            )
        self.principal, self.is_token = step.principal, step.is_token
        self._mechanism, self.has_raw_tokens = None, False
        self.stage = Stage.AUTHENTICATED
        lifetime_ms = self._lifetime_ms(step.expires_at_ms, wall_ms)
        self._session_ends_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        return TokenAnswer(step.token, lifetime_ms or 0)

    def fail(self) -> None:
        """Permit nothing any more: the login has failed."""
        self.stage = Stage.FAILED
        self._mechanism, self.has_raw_tokens = None, False

    def _lifetime_ms(self, expires_at_ms: int | None, wall_ms: int) -> int | None:
        """Return the time until the credential or the session ends, whichever is first."""
        ends = [] if expires_at_ms is None else [max(expires_at_ms - wall_ms, 0)]
        if (session_max_ms := self._session_max_ms(self.mechanism_name)) > 0:
            ends.append(session_max_ms)
        return min(ends) if ends else None
