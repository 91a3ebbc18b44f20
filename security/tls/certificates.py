"""Certificates: a private certificate authority and a server certificate that it signs.

Rule: keys are ECDSA P-256, made here and never sent anywhere. A certificate says what it is for, so
that a server's opens nothing as a client.
Must not know: files, listeners.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3_650
CERTIFICATE_DAYS: Final = 825
"""The longest time that all clients accept."""
SERVER_USE: Final = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT_USE: Final = ExtendedKeyUsageOID.CLIENT_AUTH
_CLOCKS_DIFFER: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class KeyAndCertificate:
    """A private key and its certificate, both in PEM."""

    key: str = field(repr=False)
    certificate: str


def make_authority(name: str, now_ms: int) -> KeyAndCertificate:
    """Return an authority that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    built = (
        _begun(subject, subject, key.public_key(), now_ms, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _in_pem(key, built)


def make_certificate(
    authority: KeyAndCertificate,
    name: str,
    *,
    use: x509.ObjectIdentifier,
    now_ms: int,
    hosts: Sequence[str] = (),
    days: int = CERTIFICATE_DAYS,
) -> KeyAndCertificate:
    """Return a certificate that an authority signs.

    Args:
        authority: signs it.
        name: its common name.
        use: `SERVER_USE` or `CLIENT_USE`.
        now_ms: from when on it is valid, by the wall clock.
        hosts: names and addresses of the server.
        days: how long it is valid; negative: it has expired.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signer = serialization.load_pem_private_key(authority.key.encode(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey), "an authority with another kind of key"
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begun = (
        _begun(subject, issuer.subject, key.public_key(), now_ms, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    )
    if hosts:
        names = [_general_name(each) for each in dict.fromkeys(hosts)]
        begun = begun.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _in_pem(key, begun.sign(signer, hashes.SHA256()))


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now_ms: int, days: int
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(now_ms / 1_000, UTC)
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - _CLOCKS_DIFFER)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _in_pem(key: ec.EllipticCurvePrivateKey, built: x509.Certificate) -> KeyAndCertificate:
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return KeyAndCertificate(
        private.decode(), built.public_bytes(serialization.Encoding.PEM).decode()
    )
