"""Certificates for a server and a client with TLS, from an authority that a test makes.

Rule: keys are ECDSA P-256; a certificate says whether it is a server's or a client's.
Must not know: servers, clients.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY = "authority of a test"
HOST = "127.0.0.1"
USES = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}
VALID = timedelta(days=2)


def write_certificates(folder: Path) -> None:
    """Write `ca.pem`, and `server.pem` and `client.pem` with key and certificate."""
    authority = generate_private_key(SECP256R1())
    own = _begun(AUTHORITY, authority).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    (folder / "ca.pem").write_bytes(own.sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM))
    for name, use in USES.items():
        key = generate_private_key(SECP256R1())
        host = x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))])
        begun = _begun(name, key).add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        signed = begun.add_extension(host, critical=False).sign(authority, hashes.SHA256())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"{name}.pem").write_bytes(private + signed.public_bytes(Encoding.PEM))


def _begun(name: str, key: EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(AUTHORITY))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID)
        .not_valid_after(now + VALID)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
