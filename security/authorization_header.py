"""AuthorizationHeader: logins by the header `Authorization`, of HTTP requests and gRPC calls.

    Authorization: Basic BASE64(user:password)          RFC 7617, also a delegation token
    Authorization: Bearer TOKEN                         RFC 6750, an access token as in OAUTHBEARER

Rule: a header that was accepted is remembered for a minute, by its hash, and no longer than its
token is valid; so not every call derives keys. A check knows the users that other brokers have
stored. A failed login is answered late, and an address with many of them is refused. No message has
anything of the header.
Must not know: gRPC, HTTP, what a client may do.
"""

from base64 import b64decode
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

from kledger.runtime.clock import Clock
from kledger.runtime.signal import Signal
from kledger.security.password_logins import PasswordLogins
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import (
    Authenticated,
    AuthenticationFailed,
    Challenge,
    MakeMechanism,
    MalformedToken,
    NeedWork,
    SaslMechanism,
    Step,
)
from kledger.security.sasl.oauth_bearer_state import END_OF_FAILURE, initial_response

HEADER_MAX: Final = 96 * 1024
"""Characters of a header."""
REMEMBERED_MS: Final = 60_000
"""How long a header counts that was accepted; then it is checked again."""
REMEMBERED_MAX: Final = 10_000
"""Headers that are remembered; one more lets the oldest be checked again."""
CHECKS_MAX: Final = 256
"""Headers that are being checked at a time; more are refused."""
CHECKS_OF_ADDRESS_MAX: Final = 16
"""The same of one address, so that one client cannot keep all threads busy."""
INVALID_HEADER: Final = "expected Authorization: Basic or Bearer"


class LoginLimits(Protocol):
    """What the logins of all listeners share: limits, threads, the audit log."""

    @property
    def catch_up(self) -> Callable[[], Awaitable[None]] | None:
        """Applies the users and tokens that other brokers have changed; None: there are none."""
        ...

    @property
    def failure_delay_ms(self) -> int:
        """How long the answer to a failed login waits."""
        ...

    def admits(self, address: str) -> bool:
        """Return whether a client of an address may try to log in."""
        ...

    def succeeded(self, principal: Principal, address: str, mechanism: str, listener: str) -> None:
        """Log that a client has logged in."""
        ...

    def failed(self, address: str, reason: str) -> None:
        """Count and log a failed login."""
        ...

    async def run(self, work: Callable[[], Any]) -> Any:
        """Do work in a thread."""
        ...


class _Remembered(NamedTuple):
    authenticated: Authenticated
    until_ms: int


class AuthorizationHeader:
    """The logins of one listener."""

    def __init__(
        self,
        listener: str,
        *,
        passwords: PasswordLogins,
        bearer: MakeMechanism | None,
        limits: LoginLimits,
        clock: Clock,
    ) -> None:
        """Prepare.

        Args:
            listener: its name, for the audit log.
            passwords: decides on Basic.
            bearer: begins a login with an access token; None: there are none.
            limits: shared with other listeners.
            clock: for expiry and delays.
        """
        self._listener = listener
        self._passwords = passwords
        self._bearer = bearer
        self._limits = limits
        self._clock = clock
        self._remembered: dict[bytes, _Remembered] = {}
        self._checking: dict[bytes, str] = {}
        """Addresses by the hash of a header that is being checked."""
        self._checked = Signal()

    async def login(self, header: str, address: str) -> Authenticated:
        """Return the principal of a header.

        Raises:
            AuthenticationFailed: the login is wrong.
        """
        key = sha256(f"{address}\0{header}".encode()).digest()
        while key in self._checking:  # Calls that come together are one login.
            await self._checked.wait()
        known = self._remembered.get(key)
        if known is not None and self._clock.now_ms() < known.until_ms:
            return known.authenticated
        if not self._limits.admits(address):
            raise AuthenticationFailed("too many failed logins of this address")
        if len(self._checking) >= CHECKS_MAX or self._count_of(address) >= CHECKS_OF_ADDRESS_MAX:
            raise AuthenticationFailed("too many logins at once")
        self._checking[key] = address
        try:
            return await self._checked_login(key, header, address)
        finally:
            del self._checking[key]
            self._checked.notify()

    def _count_of(self, address: str) -> int:
        return sum(each == address for each in self._checking.values())

    async def _checked_login(self, key: bytes, header: str, address: str) -> Authenticated:
        try:
            scheme, authenticated = await self._check(header)
        except (AuthenticationFailed, MalformedToken) as error:
            self._limits.failed(address, str(error.__cause__ or error))
            await self._clock.sleep(self._limits.failure_delay_ms)
            raise AuthenticationFailed(str(error)) from None
        self._limits.succeeded(authenticated.principal, address, scheme, self._listener)
        self._remember(key, authenticated)
        return authenticated

    async def _check(self, header: str) -> tuple[str, Authenticated]:
        if len(header) > HEADER_MAX:
            raise AuthenticationFailed(f"expected a header of at most {HEADER_MAX} characters")
        scheme, _, credentials = header.partition(" ")
        match scheme.lower():
            case "basic":
                user, password = _user_and_password(credentials.strip())
                if self._limits.catch_up is not None:
                    await self._limits.catch_up()
                step = self._passwords.begin(user, password, self._clock.now_ms())
                return "Basic", await self._settled(None, step)
            case "bearer" if self._bearer is not None:
                mechanism = self._bearer(self._clock.now_ms())
                message = initial_response(credentials.strip())
                return "Bearer", await self._settled(mechanism, mechanism.evaluate(message))
        raise AuthenticationFailed(INVALID_HEADER)

    async def _settled(self, mechanism: SaslMechanism | None, step: Step) -> Authenticated:
        """Do what a step needs until the login has ended."""
        while not isinstance(step, Authenticated):
            if isinstance(step, NeedWork):
                step = step.resume(await self._limits.run(step.run))
            elif mechanism is not None and isinstance(step, Challenge):
                step = mechanism.evaluate(END_OF_FAILURE)
        return step

    def _remember(self, key: bytes, authenticated: Authenticated) -> None:
        until_ms = self._clock.now_ms() + REMEMBERED_MS
        if authenticated.expires_at_ms is not None:
            until_ms = min(until_ms, authenticated.expires_at_ms)
        self._remembered.pop(key, None)
        if len(self._remembered) >= REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[key] = _Remembered(authenticated, until_ms)


def _user_and_password(credentials: str) -> tuple[str, str]:
    try:
        user, colon, password = b64decode(credentials, validate=True).decode().partition(":")
    except ValueError:
        raise AuthenticationFailed(INVALID_HEADER) from None
    if not colon:
        raise AuthenticationFailed(INVALID_HEADER)
    return user, password
