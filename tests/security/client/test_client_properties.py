"""Kafka's client properties as texts and logins; the commands' tests have more of them."""

from pathlib import Path

import pytest

from kledger.security.client.client_properties import PASSWORD_MECHANISMS, read_client_security
from kledger.security.client.client_security import (
    INSECURE,
    AccessTokenLogin,
    ClientSecurity,
    ClientTlsTexts,
    PasswordLogin,
)
from tests.security.certificates import authority

JAAS = 'a.b.LoginModule required username="ann" password="s3cret";'


def test_without_a_protocol_nothing_else_counts() -> None:
    given = {"ssl.truststore.location": "/nowhere", "sasl.mechanism": "none", "acks": "all"}
    assert INSECURE == read_client_security(given)
    assert INSECURE == read_client_security(given | {"security.protocol": "plaintext"})


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_a_user_without_tls(mechanism: str) -> None:
    found = read_client_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": JAAS,
        }
    )
    login = PasswordLogin(mechanism=mechanism, user="ann", password="s3cret")
    assert ClientSecurity(login=login) == found
    assert "s3cret" not in repr(found)


def test_a_delegation_token_is_marked() -> None:
    found = read_client_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": JAAS.replace(";", ' tokenauth="true";'),
        }
    )
    assert isinstance(found.login, PasswordLogin)
    assert found.login.is_delegation_token


def test_an_access_token_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "my token").write_text("a.b.c\n")
    found = read_client_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": (tmp_path / "my token").as_uri(),
        }
    )
    assert AccessTokenLogin(mechanism="OAUTHBEARER", token="a.b.c") == found.login
    assert "a.b.c" not in repr(found)


def test_keys_and_certificates_are_texts_or_files(tmp_path: Path) -> None:
    own = authority().issue("ann")
    (tmp_path / "ca.pem").write_text(authority().pem)
    (tmp_path / "own.pem").write_text(own.key + own.certificate)
    kinds = {"ssl.truststore.type": "PEM", "ssl.keystore.type": "pem", "security.protocol": "SSL"}
    by_file = {
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.keystore.location": str(tmp_path / "own.pem"),
    }
    by_text = {
        "ssl.truststore.certificates": authority().pem,
        "ssl.keystore.certificate.chain": own.certificate,
        "ssl.keystore.key": own.key,
    }
    expected = ClientTlsTexts(
        trusted=authority().pem.strip(), chain=own.certificate.strip(), key=own.key.strip()
    )
    for given in (by_file, by_text):
        found = read_client_security(kinds | given)
        assert ClientSecurity(tls=expected) == found
        assert own.key not in repr(found)


@pytest.mark.parametrize(("algorithm", "is_checked"), [("HTTPS", True), ("", False), (" ", False)])
def test_host_names_are_checked_unless_that_is_switched_off(
    algorithm: str, is_checked: bool
) -> None:
    given = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": algorithm}
    assert ClientTlsTexts(checks_host_name=is_checked) == read_client_security(given).tls


def test_another_algorithm_is_refused() -> None:
    given = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "LDAPS"}
    with pytest.raises(ValueError, match=r"^ssl\.endpoint\.identification\.algorithm: .*ldaps"):
        read_client_security(given)
