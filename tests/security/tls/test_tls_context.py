"""Contexts from PEM: what works, what is refused, and what changes on disk."""

import logging
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from kledger.security.tls.certificates import (
    CLIENT_USE,
    SERVER_USE,
    KeyAndCertificate,
    make_authority,
    make_certificate,
)
from kledger.security.tls.distinguished_name import subject_of
from kledger.security.tls.pem_text import TlsMistake
from kledger.security.tls.tls_context import TlsContext
from kledger.security.tls.tls_settings import TlsSettings

NOW_MS = 1_900_000_000_000
AUTHORITY = make_authority("authority", NOW_MS)
SERVER = make_certificate(AUTHORITY, "server", use=SERVER_USE, now_ms=NOW_MS, hosts=["localhost"])
OTHER = make_certificate(AUTHORITY, "other", use=SERVER_USE, now_ms=NOW_MS, hosts=["localhost"])


def settings_of(**given: str) -> TlsSettings:
    """Return settings by Kafka's names, with underscores for dots and without `ssl`."""
    texts = {f"ssl.{name.replace('_', '.')}": text for name, text in given.items()}
    return TlsSettings.read(lambda name: texts.get(name, ""))


def keystore(folder: Path, pair: KeyAndCertificate = SERVER) -> str:
    file = folder / "server.pem"
    file.write_text(pair.key + pair.certificate)
    return str(file)


def certificate_of(context: ssl.SSLContext) -> str:
    """Return the subject that a client of the context sees."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    far = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (near, far, near, far):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    certificate = near.getpeercert(binary_form=True)
    assert certificate is not None
    return subject_of(certificate)


def test_a_file_with_key_and_certificate_works(tmp_path: Path) -> None:
    context = TlsContext(settings_of(keystore_location=keystore(tmp_path))).current()
    assert "CN=server" == certificate_of(context)
    assert (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3) == (
        context.minimum_version,
        context.maximum_version,
    )


def test_texts_in_place_of_a_file_work() -> None:
    settings = settings_of(
        keystore_type="PEM",
        keystore_key=SERVER.key,
        keystore_certificate_chain=SERVER.certificate + AUTHORITY.certificate,
        truststore_certificates=AUTHORITY.certificate,
        client_auth="required",
        enabled_protocols="TLSv1.3",
    )
    context = TlsContext(settings).current()
    assert ssl.CERT_REQUIRED is context.verify_mode
    assert ssl.TLSVersion.TLSv1_3 is context.minimum_version
    assert SERVER.key not in repr(settings)


def test_an_encrypted_key_needs_its_password() -> None:
    key = serialization.load_pem_private_key(SERVER.key.encode(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"hush"),
    ).decode()
    given = {"keystore_key": encrypted, "keystore_certificate_chain": SERVER.certificate}
    assert "CN=server" == certificate_of(
        TlsContext(settings_of(**given, key_password="hush")).current()
    )
    for password in ("", "other hush"):
        with pytest.raises(TlsMistake, match="do not work together") as refused:
            TlsContext(settings_of(**given, key_password=password))
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "ssl.keystore.key: expected a private key and a certificate in PEM"),
        ({"keystore_location": "/nowhere"}, "ssl.keystore.location: /nowhere: No such file"),
        ({"keystore_type": "JKS"}, "ssl.keystore.type: expected PEM, got 'JKS'"),
        ({"truststore_type": "PKCS12"}, "ssl.truststore.type: expected PEM"),
        ({"client_auth": "maybe"}, "ssl.client.auth: expected none or requested or required"),
        ({"enabled_protocols": "TLSv1.1"}, "ssl.enabled.protocols: expected TLSv1.2 and TLSv1.3"),
        (
            {"keystore_key": SERVER.key, "keystore_certificate_chain": OTHER.certificate},
            "do not work together: KEY_VALUES_MISMATCH",
        ),
        (
            {
                "keystore_key": SERVER.key,
                "keystore_certificate_chain": SERVER.certificate,
                "client_auth": "required",
            },
            "ssl.truststore.location: ssl.client.auth=required needs certificates",
        ),
        (
            {
                "keystore_key": SERVER.key,
                "keystore_certificate_chain": SERVER.certificate,
                "truststore_certificates": SERVER.key,
            },
            "ssl.truststore.certificates: expected certificates in PEM",
        ),
        (
            {
                "keystore_key": SERVER.key,
                "keystore_certificate_chain": SERVER.certificate,
                "truststore_location": "/nowhere",
            },
            "ssl.truststore.location: /nowhere: No such file",
        ),
    ],
)
def test_what_cannot_work_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(TlsMistake, match=message):
        TlsContext(settings_of(**given))


def test_a_changed_file_is_read_again_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    context = TlsContext(settings_of(keystore_location=keystore(tmp_path)), "SSL")
    first = context.current()
    assert first is context.current()
    keystore(tmp_path, OTHER)
    assert "CN=other" == certificate_of(context.current())
    (tmp_path / "server.pem").write_text(SERVER.key)
    for _ in range(3):
        assert "CN=other" == certificate_of(context.current())
    (tmp_path / "server.pem").unlink()
    assert "CN=other" == certificate_of(context.current())
    keystore(tmp_path)
    assert "CN=server" == certificate_of(context.current())
    lines = [record.getMessage() for record in caplog.records]
    assert 2 == sum("were read again" in line for line in lines)
    assert 2 == sum("those before them stay" in line for line in lines)


def test_a_certificate_of_a_server_is_none_of_a_client() -> None:
    client = make_certificate(AUTHORITY, "client", use=CLIENT_USE, now_ms=NOW_MS)
    assert "PRIVATE" not in repr(client)
    assert client.certificate != SERVER.certificate
