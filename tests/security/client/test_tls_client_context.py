"""What a client's context verifies; handshakes are in the tests of the Spark client."""

import ssl

import pytest

from kledger.security.client.client_security import ClientTlsTexts
from kledger.security.client.tls_client_context import make_client_context
from kledger.security.tls.pem_text import TlsMistake
from tests.security.certificates import authority


def test_the_authorities_are_those_that_are_given() -> None:
    context = make_client_context(ClientTlsTexts(trusted=authority().pem))
    assert (ssl.CERT_REQUIRED, True) == (context.verify_mode, context.check_hostname)
    assert 1 == context.cert_store_stats()["x509_ca"]


def test_a_server_is_verified_though_its_name_is_not() -> None:
    context = make_client_context(ClientTlsTexts(checks_host_name=False))
    assert (ssl.CERT_REQUIRED, False) == (context.verify_mode, context.check_hostname)


def test_texts_that_cannot_work_are_named() -> None:
    ann, bob = authority().issue("ann"), authority().issue("bob")
    with pytest.raises(TlsMistake, match=r"^ssl\.keystore: "):
        make_client_context(ClientTlsTexts(chain=ann.certificate, key=bob.key))
    damaged = ann.certificate.replace("M", "N")
    with pytest.raises(TlsMistake, match=r"^ssl\.truststore: "):
        make_client_context(ClientTlsTexts(trusted=damaged))
