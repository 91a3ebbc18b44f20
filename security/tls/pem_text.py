"""PEM text: the private key and the certificates in a text or a file.

Rule: a private key is never written anywhere, and no message has anything of it. What is missing,
unreadable or too large is an error that names the setting.
Must not know: what keys and certificates are for.
"""

import re
from pathlib import Path
from typing import Final

PEM_BYTES_MAX: Final = 4 << 20
"""Bytes of one file."""
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL
)
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)


class TlsMistake(ValueError):
    """Settings of TLS cannot work; the message begins with the setting's name."""


def private_key_in(text: str) -> str:
    """Return the first private key in a text; empty if there is none."""
    found = _PRIVATE_KEY.search(text)
    return "" if found is None else found[0]


def certificates_in(text: str) -> str:
    """Return all certificates in a text, without what is between them; empty if there is none."""
    return "\n".join(_CERTIFICATE.findall(text))


def read_text(setting: str, location: str) -> str:
    """Read a file of at most PEM_BYTES_MAX.

    Args:
        setting: the name of the setting, for the error.
        location: the path.

    Raises:
        TlsMistake: it cannot be read, is too large or is no text.
    """
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
        raise TlsMistake(f"{setting}: {location}: expected text in UTF-8") from None


def without_password(key: str, password: str) -> str:
    """Return a private key in PEM that is not encrypted, for libraries that take no password.

    Raises:
        ValueError: the password is wrong or missing, or it is no key.
    """
    if not password and "ENCRYPTED" not in key:
        return key
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - few keys need it

    try:
        try:
            found = serialization.load_pem_private_key(key.encode(), password.encode() or None)
        except TypeError:
            if not password:
                raise
            found = serialization.load_pem_private_key(key.encode(), None)  # it has none
    except (TypeError, ValueError):
        raise ValueError("ssl.key.password: expected the password of the private key") from None
    return found.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode("ascii")
