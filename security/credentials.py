"""Credentials: what is stored in place of a password, as SCRAM defines it (RFC 5802, section 3).

    SaltedPassword  = PBKDF2(password, salt, iterations)
    StoredKey       = H(HMAC(SaltedPassword, "Client Key"))
    ServerKey       = HMAC(SaltedPassword, "Server Key")

Rule: pure. A credential proves a password and is of no use to log in with. PLAIN has credentials of
the same form, so that no password is stored for any mechanism; one of SCRAM never opens PLAIN.
Must not know: where credentials are stored, the messages of a login.
"""

import hashlib
import hmac
from enum import Enum
from typing import Final, NamedTuple

PLAIN: Final = "PLAIN"
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
"""The bounds of Apache Kafka."""
SALT_BYTES: Final = 32
USER_NAME_MAX: Final = 1_024
"""Characters of the name of a user."""
PASSWORD_BYTES_MAX: Final = 64 * 1024


class ScramMechanism(Enum):
    """The mechanisms of SCRAM, with their codes in Kafka's requests (KIP-554)."""

    SHA_256 = "SCRAM-SHA-256", 1, "sha256"
    SHA_512 = "SCRAM-SHA-512", 2, "sha512"

    def __init__(self, sasl_name: str, code: int, hash_name: str) -> None:
        self.sasl_name = sasl_name
        self.code = code
        self.hash_name = hash_name
        self.digest_bytes = hashlib.new(hash_name).digest_size

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Return SaltedPassword; takes milliseconds and releases the GIL."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)

    def keyed_hash(self, key: bytes, message: bytes) -> bytes:
        """Return the HMAC of a message."""
        return hmac.digest(key, message, self.hash_name)

    def hash(self, message: bytes) -> bytes:
        """Return the hash of a message."""
        return hashlib.new(self.hash_name, message).digest()


PLAIN_HASH: Final = ScramMechanism.SHA_512
"""How credentials of PLAIN are derived."""
BY_SASL_NAME: Final = {each.sasl_name: each for each in ScramMechanism}
BY_CODE: Final = {each.code: each for each in ScramMechanism}


class ScramCredential(NamedTuple):
    """What a server stores of one user and mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"  # keys do not get into logs


def credential_from_salted(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a password that the client has salted itself."""
    client_key = mechanism.keyed_hash(salted_password, b"Client Key")
    server_key = mechanism.keyed_hash(salted_password, b"Server Key")
    return ScramCredential(salt, mechanism.hash(client_key), server_key, iterations)


def make_credential(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a password; takes milliseconds."""
    salted = mechanism.salted_password(password, salt, iterations)
    return credential_from_salted(mechanism, salted, salt, iterations)


def is_password_of(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    """Return whether a password has that credential; takes milliseconds."""
    derived = make_credential(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(derived.stored_key, credential.stored_key)


def decoy_credential(
    mechanism: ScramMechanism, user: str, secret: bytes, iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    """Return what stands for a user that does not exist, the same whenever it is asked for.

    Args:
        mechanism: of the login.
        user: as the client named it.
        secret: of this server, and only of it.
        iterations: as most users have them.
    """
    salt = hmac.digest(secret, f"{mechanism.sasl_name} {user}".encode(), "sha256")
    key = mechanism.keyed_hash(secret, salt)
    return ScramCredential(salt[:SALT_BYTES], key, key, iterations)


def check_user_name(name: str) -> None:
    """Refuse a name that no user can have.

    Raises:
        ValueError: what was expected.
    """
    if not name:
        raise ValueError("Username must not be empty")
    if len(name) > USER_NAME_MAX:
        raise ValueError(f"expected at most {USER_NAME_MAX} characters of a user name")
    if not (name.isascii() and name.isprintable()):
        raise ValueError("expected printable ASCII characters in a user name")


def check_iterations(iterations: int) -> None:
    """Refuse what is less than safe or more than a login may cost.

    Raises:
        ValueError: the bound, in Kafka's words.
    """
    if iterations < ITERATIONS_MIN:
        raise ValueError("Too few iterations")
    if iterations > ITERATIONS_MAX:
        raise ValueError("Too many iterations")
