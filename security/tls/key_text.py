"""Key text: keys and certificates in PEM, and keys without a password for libraries without one.

Rule: the text of a key is never written anywhere, and no message has anything of it.
Must not know: who uses the key.
"""

import re
from typing import Final

PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL
)
CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)


def without_password(key: str, password: str) -> str:
    """Return a private key in PEM that is not encrypted.

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
