"""ClientCredentials: the login of a native client.

Rule: an access token, or user and password, go into a header of every call; a certificate into the
handshake of TLS. None of them is in the text of an object or an error.
Must not know: where a program gets them from.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from kledger.native.errors import InvalidArgument
from kledger.native.rpc.protocol import Option
from kledger.native.rpc.sessions import AUTHORIZATION_KEY
from kledger.native.rpc.tls import ClientTls

CREDENTIALS_MAX = 64 * 1024
"""Characters of a token, or of user and password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """What one client has; without anything it is ANONYMOUS.

    Attributes:
        token: an access token (a JWT).
        username: with `password`; contains no colon.
        tls: None: the connection is not encrypted.
    """

    token: str | None = field(default=None, repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ClientTls | None = None

    def check(self) -> None:
        """Refuse what no server can accept.

        Raises:
            InvalidArgument: one line that names the argument.
        """
        for name in ("token", "username", "password"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and 0 < len(value)):
                raise InvalidArgument(f"{name}: expected a text that is not empty")
            if value is not None and len(value) > CREDENTIALS_MAX:
                raise InvalidArgument(f"{name}: expected at most {CREDENTIALS_MAX} characters")
        if (self.username is None) != (self.password is None):
            raise InvalidArgument("expected username and password together")
        if self.token is not None and self.username is not None:
            raise InvalidArgument("expected a token, or username and password, not both")
        if self.username is not None and ":" in self.username:
            raise InvalidArgument("username: expected no colon")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise InvalidArgument("token: expected printable ASCII")

    def metadata(self) -> Sequence[tuple[str, str]]:
        """Return the header of every call."""
        if self.token is not None:
            return ((AUTHORIZATION_KEY, f"Bearer {self.token}"),)
        if self.username is not None:
            pair = b64encode(f"{self.username}:{self.password}".encode()).decode("ascii")
            return ((AUTHORIZATION_KEY, f"Basic {pair}"),)
        return ()

    def channel(self, address: str, options: Sequence[Option]) -> Any:
        """Return a connection of gRPC. Raises InvalidArgument."""
        if self.tls is None:
            return grpc.aio.insecure_channel(address, options=options)
        return grpc.aio.secure_channel(address, self.tls.make(), options=options)


ANONYMOUS_CREDENTIALS = ClientCredentials()
