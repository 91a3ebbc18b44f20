"""The security of Apache Kafka's client properties.

    security.protocol=SASL_SSL
    ssl.truststore.type=PEM
    ssl.truststore.location=/etc/kledger/ca.pem
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=… required username="admin" password="…";

Rule: a value that cannot work is an error that names the property; properties of a protocol that is
not chosen do not count, as in Kafka. No message has a value of a secret.
Must not know: files of properties, connections.
"""

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from kledger.security.client.client_security import (
    AccessTokenLogin,
    ClientLogin,
    ClientSecurity,
    ClientTlsTexts,
    PasswordLogin,
)
from kledger.security.credentials import BY_SASL_NAME, PLAIN
from kledger.security.jaas import parse_jaas
from kledger.security.sasl.oauth_bearer_state import OAUTHBEARER
from kledger.security.tls.pem_text import (
    certificates_in,
    private_key_in,
    read_text,
    without_password,
)

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PASSWORD_MECHANISMS: Final = (PLAIN, *BY_SASL_NAME)
PROPERTIES: Final = (
    "security.protocol", "sasl.mechanism", "sasl.jaas.config",
    "sasl.oauthbearer.token.endpoint.url", "ssl.endpoint.identification.algorithm",
    "ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key",
    "ssl.keystore.location", "ssl.keystore.type", "ssl.truststore.certificates",
    "ssl.truststore.location", "ssl.truststore.type",
)  # fmt: skip
"""The names of those that count."""


def read_client_security(properties: Mapping[str, str]) -> ClientSecurity:
    """Check properties, and read the files that they name.

    Args:
        properties: by Kafka's names; others than PROPERTIES are skipped.

    Raises:
        ValueError: one cannot work; the message begins with its name.
    """
    protocol = properties.get("security.protocol", PROTOCOLS[0]).strip().upper()
    if protocol not in PROTOCOLS:
        raise ValueError(f"security.protocol: expected {', '.join(PROTOCOLS)}, got {protocol!r}")
    return ClientSecurity(
        login=_login(properties) if protocol.startswith("SASL") else None,
        tls=_tls(properties) if protocol.endswith("SSL") else None,
    )


def _login(properties: Mapping[str, str]) -> ClientLogin:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip().upper()
    if mechanism == OAUTHBEARER:
        return AccessTokenLogin(mechanism=mechanism, token=_token(properties))
    if mechanism not in PASSWORD_MECHANISMS:
        known = ", ".join((*PASSWORD_MECHANISMS, OAUTHBEARER))
        raise ValueError(f"sasl.mechanism: expected {known}, got {mechanism!r}")
    setting = "sasl.jaas.config"
    try:
        options = parse_jaas(properties.get(setting, "")).options
    except ValueError as error:
        raise ValueError(f"{setting}: {error}") from None
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise ValueError(f"{setting}: expected {' and '.join(missing)}")
    return PasswordLogin(
        mechanism=mechanism,
        user=options["username"],
        password=options["password"],
        is_delegation_token=options.get("tokenauth", "").lower() == "true",
    )


def _token(properties: Mapping[str, str]) -> str:
    """Return the access token in the file that a property names."""
    setting = "sasl.oauthbearer.token.endpoint.url"
    url = urlsplit(properties.get(setting, "").strip())
    if url.scheme != "file" or url.netloc not in ("", "localhost") or not url.path:
        raise ValueError(f"{setting}: expected file:///PATH, a file with an access token")
    return read_text(setting, unquote(url.path)).strip()


def _tls(properties: Mapping[str, str]) -> ClientTlsTexts:
    def text(name: str) -> str:
        return properties.get(name, "").strip()

    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        store = name.removesuffix(".type")
        is_given = any(each.startswith(f"{store}.") for each in properties)
        if is_given and text(name).upper() != "PEM":
            raise ValueError(f"{name}: expected PEM, got {text(name) or 'nothing'!r}")
    trust = _stored(text, "ssl.truststore.location", "ssl.truststore.certificates")
    trusted = certificates_in(trust)
    if trust and not trusted:
        raise ValueError("ssl.truststore: expected certificates in PEM")
    store = _stored(text, "ssl.keystore.location", "ssl.keystore.certificate.chain")
    key, chain = private_key_in(text("ssl.keystore.key") or store), certificates_in(store)
    if store and not (key and chain):
        raise ValueError("ssl.keystore: expected a private key and a certificate in PEM")
    return ClientTlsTexts(
        trusted=trusted,
        chain=chain,
        key=without_password(key, text("ssl.key.password")) if chain else "",
        checks_host_name=_checks_host_name(properties),
    )


def _checks_host_name(properties: Mapping[str, str]) -> bool:
    setting = "ssl.endpoint.identification.algorithm"
    algorithm = properties.get(setting, "https").strip().lower()
    if algorithm not in ("https", ""):
        raise ValueError(f"{setting}: expected https or nothing, got {algorithm!r}")
    return bool(algorithm)


def _stored(text: Callable[[str], str], location: str, content: str) -> str:
    return read_text(location, text(location)) if text(location) else text(content)
