"""ClientSecurity: the credentials of a client, and the authorities that it trusts.

Rule: values only, texts in place of files. No secret is in the text of an object.
Must not know: where they come from, connections.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordLogin:
    """A login with PLAIN or SCRAM.

    Attributes:
        mechanism: by its name in SASL.
        is_delegation_token: the user is the id of a token, the password its HMAC (KIP-48).
    """

    mechanism: str
    user: str
    password: str = field(repr=False)
    is_delegation_token: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessTokenLogin:
    """A login with OAUTHBEARER."""

    mechanism: str
    token: str = field(repr=False)


ClientLogin = PasswordLogin | AccessTokenLogin


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTlsTexts:
    """Texts in PEM, empty where there is none.

    Attributes:
        trusted: authorities of servers; empty: those of the machine.
        chain: the client's certificate and those between it and its authority.
        key: of the certificate, without a password.
        checks_host_name: the server's certificate must be for the name that was connected to.
    """

    trusted: str = ""
    chain: str = ""
    key: str = field(default="", repr=False)
    checks_host_name: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """How a client connects.

    Attributes:
        login: None: the client does not log in.
        tls: None: the connection is not encrypted.
    """

    login: ClientLogin | None = None
    tls: ClientTlsTexts | None = None


INSECURE = ClientSecurity()
"""Neither login nor TLS."""
