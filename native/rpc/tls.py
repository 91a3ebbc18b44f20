"""TLS of the native protocol: the credentials of gRPC on both sides.

Rule: a server loads its keys at every handshake, so that new connections get changed files; if
these are invalid, the former keys stay. TLS 1.2 and 1.3, as gRPC has them. A client trusts the
authorities that it names, or those of its machine.
Must not know: settings, where keys come from.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from kledger.native.errors import InvalidArgument

logger = logging.getLogger(__name__)

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)
PEM_BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsTexts:
    """PEM texts of a server, the key without a password.

    Attributes:
        chain: its certificate and those between it and the authority.
        trusted: authorities of clients' certificates; empty: clients need none.
    """

    key: str = field(repr=False)
    chain: str
    trusted: str = ""


class TlsCredentials:
    """What a server shows to clients."""

    def __init__(
        self, read: Callable[[], TlsTexts | None], *, requires_certificate: bool = False
    ) -> None:
        """Read the texts.

        Args:
            read: returns the texts; None: they are what they were. Raises ValueError.
            requires_certificate: clients without a certificate of a trusted authority are refused.

        Raises:
            ValueError: there are none.
        """
        first = read()
        if first is None:
            raise ValueError("expected a private key and a certificate")
        self._read = read
        self._requires_certificate = requires_certificate
        self._first = _configuration(first)
        self._is_broken = False

    def make(self) -> Any:
        """Return the credentials of a port."""
        return grpc.dynamic_ssl_server_credentials(
            self._first,
            self._newer,
            require_client_authentication=self._requires_certificate,
        )

    def _newer(self) -> Any:
        """Return a configuration that differs from the last, or None; called by gRPC's threads."""
        try:
            texts = self._read()
        except ValueError as error:
            if not self._is_broken:
                logger.warning("native listener: keys stay as they were: %s", error)
            self._is_broken = True
            return None
        self._is_broken = False
        return None if texts is None else _configuration(texts)


def _configuration(texts: TlsTexts) -> Any:
    return grpc.ssl_server_certificate_configuration(
        [(texts.key.encode(), texts.chain.encode())], texts.trusted.encode() or None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """What a client trusts and shows; texts in PEM, or paths of files with them.

    Attributes:
        ca: authorities of the server's certificate; None: those of the machine.
        certificate: of the client, with those between it and its authority; None: it shows none.
        key: the private key of the certificate, without a password.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)

    def make(self) -> Any:
        """Return the credentials of a connection. Raises InvalidArgument."""
        if (self.certificate is None) != (self.key is None):
            raise InvalidArgument("expected certificate and key together")
        return grpc.ssl_channel_credentials(
            _pem("ca", self.ca), _pem("key", self.key), _pem("certificate", self.certificate)
        )


def _pem(name: str, given: str | None) -> bytes | None:
    """Return a text in PEM, which is given or in the file of that path."""
    if given is None:
        return None
    if _PEM.search(given):
        return given.encode()
    try:
        with Path(given).open("rb") as file:
            content = file.read(PEM_BYTES_MAX)
    except OSError as error:
        raise InvalidArgument(f"{name}: {given}: {error.strerror}") from None
    if not _PEM.search(content.decode("ascii", "replace")):
        raise InvalidArgument(f"{name}: {given}: expected a text in PEM")
    return content
