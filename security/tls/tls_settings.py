"""TlsSettings: the `ssl.*` settings of one listener, and the PEM texts that they name.

Rule: a file is read as a whole when it is needed, and again when it has changed; what is missing,
unreadable or of another type than PEM is an error that names the setting.
Must not know: sockets, which listener.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kledger.security.tls.key_text import CERTIFICATE, PRIVATE_KEY

PEM_BYTES_MAX: Final = 4 << 20
"""Bytes of one file."""
CLIENT_AUTH: Final = ("none", "requested", "required")
PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")

FileState = tuple[int, int, int]
"""Modification time in ns, size and inode."""


class TlsMistake(ValueError):
    """Settings of TLS cannot work; the message begins with the setting's name."""


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
            text = _read(setting, self.keystore_location)
            key = PRIVATE_KEY.search(text)
            key_text, chain = key[0] if key is not None else "", text
        else:
            setting = "ssl.keystore.key"
            key_text, chain = self.keystore_key, self.keystore_certificate_chain
        certificates = CERTIFICATE.findall(chain)
        if not PRIVATE_KEY.search(key_text) or not certificates:
            raise TlsMistake(f"{setting}: expected a private key and a certificate in PEM")
        return TlsMaterial(
            key=key_text,
            chain="\n".join(certificates),
            trusted=self._trusted(),
            password=self.key_password,
        )

    def _trusted(self) -> str:
        text, setting = self.truststore_certificates, "ssl.truststore.certificates"
        if self.truststore_location:
            setting = "ssl.truststore.location"
            text = _read(setting, self.truststore_location)
        certificates = "\n".join(CERTIFICATE.findall(text))
        if not certificates and (self.client_auth != CLIENT_AUTH[0] or text):
            raise TlsMistake(
                f"{setting}: expected certificates in PEM, as ssl.client.auth is {self.client_auth}"
            )
        return certificates


def _state(location: str) -> FileState | None:
    try:
        found = Path(location).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(setting: str, location: str) -> str:
    try:
        with Path(location).open("rb") as file:
            content = file.read(PEM_BYTES_MAX + 1)
    except OSError as error:
        raise TlsMistake(f"{setting}: {location}: {error.strerror}") from None
    if len(content) > PEM_BYTES_MAX:
        raise TlsMistake(f"{setting}: {location}: expected at most {PEM_BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise TlsMistake(f"{setting}: {location}: expected text in PEM") from None
