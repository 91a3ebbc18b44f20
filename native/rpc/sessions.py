"""Sessions: how the listener for native clients finds the user of a call.

Rule: every call and stream has a session, with the broker as its client may use it. A session that
cannot be opened is NotAllowed. Credentials are in the call's metadata or in the connection's
certificate, never in a message.
Must not know: how a login is checked, what a client may do.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol
from urllib.parse import unquote

from kledger.native.broker import Broker, OnEnded
from kledger.native.rpc.protocol import Context

AUTHORIZATION_KEY = "authorization"


class CallOrigin(NamedTuple):
    """What a call brings along.

    Attributes:
        host: the client's address.
        authorization: the header; None: there is none.
        certificate: of the client, in PEM; None: it showed none.
    """

    host: str
    authorization: str | None = None
    certificate: bytes | None = None


class BrokerSession(Protocol):
    """One call or stream, after its login."""

    @property
    def broker(self) -> Broker:
        """The broker as the client may use it."""
        ...

    def end_at_expiry(self, end: OnEnded) -> None:
        """Call `end` with the error when the login expires."""
        ...

    def count_produced(self, size: int, resume: Callable[[], None]) -> bool:
        """Count bytes that the client sent, against its quota.

        Returns:
            Whether nothing more may be taken from the client until `resume` is called.
        """
        ...

    def count_delivered(self, size: int, resume: Callable[[], None]) -> bool:
        """Count bytes that go to the client, likewise."""
        ...

    def close(self) -> None:
        """End the session; `resume` is not called any more. May be repeated."""
        ...


class SessionSource(Protocol):
    """Opens sessions."""

    async def open(self, origin: CallOrigin) -> BrokerSession:
        """Return the session of a call.

        Raises:
            NotAllowed: the login is wrong.
        """
        ...


class OpenSessions:
    """Sessions of a server that asks nobody: every client gets the whole broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def open(self, origin: CallOrigin) -> "OpenSessions":
        """Return the same session for all."""
        del origin
        return self

    def end_at_expiry(self, end: OnEnded) -> None:
        """Do nothing: it does not expire."""

    def count_produced(self, size: int, resume: Callable[[], None]) -> bool:
        """Return False: there are no quotas."""
        del size, resume
        return False

    count_delivered = count_produced

    def close(self) -> None:
        """Do nothing: it belongs to all."""


def origin_of(context: Context) -> CallOrigin:
    """Return what a call of gRPC brings along."""
    metadata = dict(context.invocation_metadata() or ())
    header = metadata.get(AUTHORIZATION_KEY)
    shown: Mapping[str, list[bytes]] = context.auth_context()
    certificates = shown.get("x509_pem_cert")
    return CallOrigin(
        host=_host_of(context.peer()),
        authorization=header if isinstance(header, str) else None,
        certificate=certificates[0] if certificates else None,
    )


def _host_of(peer: str) -> str:
    """Return the address in gRPC's text of a peer, such as `ipv6:%5B::1%5D:4711`."""
    _, _, address = unquote(peer).partition(":")
    return address.rpartition(":")[0].strip("[]") or peer
