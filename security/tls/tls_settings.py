"""TlsSettings: the `ssl.*` settings of one listener, and the PEM texts that they name.

Rule: a file is read as a whole when it is needed, and again when it has changed; what is missing,
unreadable or of another type than PEM is an error that names the setting.
Must not know: sockets, which listener.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kledger.security.tls.pem_text import TlsMistake, certificates_in, private_key_in, read_text

CLIENT_AUTH: Final = ("none", "requested", "required")
PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")

FileState = tuple[int, int, int]
"""Modification time in ns, size and inode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsMaterial:
    """PEM texts: the private key, the certificates of this server, those that clients must have.

    Attributes:
        chain: this server's certificate and those between it and the authority.
        trusted: authorities of clients' certificates; empty: clients have none.
    """

    key: str = field(repr=False)
    chain: str
    trusted: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The settings of one listener, by Kafka's names without `ssl.`."""

    keystore_location: str = ""
    keystore_key: str = field(default="", repr=False)
    keystore_certificate_chain: str = ""
    key_password: str = field(default="", repr=False)
    truststore_location: str = ""
    truststore_certificates: str = ""
    client_auth: str = "none"
    enabled_protocols: tuple[str, ...] = PROTOCOLS

    @staticmethod
    def read(setting: Callable[[str], str]) -> "TlsSettings":
        """Read the settings.

        Args:
            setting: returns the text of a setting by Kafka's name; empty if it is not set.

        Raises:
            TlsMistake: a value cannot work.
        """
        for name in ("ssl.keystore.type", "ssl.truststore.type"):
            if setting(name).upper() not in ("", "PEM"):
                raise TlsMistake(f"{name}: expected PEM, got {setting(name)!r}")
        client_auth = setting("ssl.client.auth").lower() or CLIENT_AUTH[0]
        if client_auth not in CLIENT_AUTH:
            raise TlsMistake(
                f"ssl.client.auth: expected {' or '.join(CLIENT_AUTH)}, got {client_auth!r}"
            )
        listed = setting("ssl.enabled.protocols") or ",".join(PROTOCOLS)
        protocols = tuple(each.strip() for each in listed.split(","))
        if not protocols or not set(protocols) <= set(PROTOCOLS):
            raise TlsMistake(
                f"ssl.enabled.protocols: expected {' and '.join(PROTOCOLS)}, got {listed!r}"
            )
        return TlsSettings(
            keystore_location=setting("ssl.keystore.location"),
            keystore_key=setting("ssl.keystore.key"),
            keystore_certificate_chain=setting("ssl.keystore.certificate.chain"),
            key_password=setting("ssl.key.password"),
            truststore_location=setting("ssl.truststore.location"),
            truststore_certificates=setting("ssl.truststore.certificates"),
            client_auth=client_auth,
            enabled_protocols=protocols,
        )

    def file_states(self) -> tuple[FileState | None, ...]:
        """Return what changes when a file changes; None for one that cannot be read."""
        return tuple(
            _state(location)
            for location in (self.keystore_location, self.truststore_location)
            if location
        )

    def material(self) -> TlsMaterial:
        """Read keys and certificates.

        Raises:
            TlsMistake: something is missing or cannot be read.
        """
        if self.keystore_location:
            setting = "ssl.keystore.location"
            chain = read_text(setting, self.keystore_location)
            key = private_key_in(chain)
        else:
            setting = "ssl.keystore.key"
            key, chain = private_key_in(self.keystore_key), self.keystore_certificate_chain
        chain = certificates_in(chain)
        if not key or not chain:
            raise TlsMistake(f"{setting}: expected a private key and a certificate in PEM")
        return TlsMaterial(
            key=key, chain=chain, trusted=self._trusted(), password=self.key_password
        )

    def _trusted(self) -> str:
        text, setting = self.truststore_certificates, "ssl.truststore.certificates"
        if self.truststore_location:
            setting = "ssl.truststore.location"
            text = read_text(setting, self.truststore_location)
        certificates = certificates_in(text)
        if text and not certificates:
            raise TlsMistake(f"{setting}: expected certificates in PEM")
        if not certificates and self.client_auth != CLIENT_AUTH[0]:
            raise TlsMistake(
                f"ssl.truststore.location: ssl.client.auth={self.client_auth} needs certificates"
            )
        return certificates


def _state(location: str) -> FileState | None:
    try:
        found = Path(location).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
