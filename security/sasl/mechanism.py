"""SaslMechanism: the server's side of one login, for connections and for HTTP and gRPC.

Rule: pure. A token of the client leads to one of three steps; what takes long (hashing, verifying a
signature) is `NeedWork`, which the caller runs in a thread and then resumes. An object serves one
login and ends with `Authenticated` or an exception.
Must not know: connections, clocks, stored rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from kledger.security.principal import Principal

T = TypeVar("T")


class AuthenticationFailed(Exception):
    """The login is wrong; the message is for the client.

    It is the same for an unknown user and a wrong password. The cause, if there is one, says why in
    the log, and quotes nothing of the token.
    """


def invalid_credentials(mechanism: str) -> AuthenticationFailed:
    """Return the failure that Kafka answers to a message that is no login, or proves nothing."""
    return AuthenticationFailed(
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )


class MalformedToken(Exception):
    """A token that no client sends; the connection ends without an answer, as Kafka's does.

    The message is for the log, and quotes nothing of the token.
    """


@dataclass(frozen=True, slots=True)
class Challenge:
    """The login goes on: the client answers this token with its next one."""

    token: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """The login has succeeded."""

    principal: Principal
    token: bytes = b""
    """What the client gets with the success."""
    expires_at_ms: int | None = None
    """When the credential ends, by the wall clock; None: never."""
    is_token: bool = False
    """Whether the client used a delegation token (KIP-48)."""


@dataclass(frozen=True, slots=True)
class NeedWork(Generic[T]):
    """The login goes on in a thread: the next step is `resume(run())`."""

    run: Callable[[], T]
    """Runs in a thread; reaches nothing that the event loop changes."""
    resume: Callable[[T], "Step"]
    """Runs on the event loop; raises what `SaslMechanism.evaluate` raises."""


Step: TypeAlias = Challenge | Authenticated | NeedWork[Any]


class SaslMechanism(Protocol):
    """One login."""

    def evaluate(self, token: bytes) -> Step:
        """Decide on the next token of the client.

        Raises:
            AuthenticationFailed: the login has failed; the client gets the message.
            MalformedToken: the login has failed, and the connection ends without an answer.
        """
        ...


MakeMechanism: TypeAlias = Callable[[int], SaslMechanism]
"""Begins a login at a time of the wall clock, in ms; expiry is judged by it."""
