"""A listener is complete, or the start ends with the name of the setting."""

import pytest

from kledger.gateway.config import GatewayConfig, PrefixedSettings
from kledger.gateway.listeners.endpoint import Endpoint, make_endpoint
from kledger.gateway.listeners.listener_plan import ListenerMistake
from kledger.gateway.listeners.listener_settings import plans_of
from kledger.runtime.entropy import SeededEntropy
from kledger.security.sasl.mechanisms import Mechanisms
from tests.gateway.listening import JAAS, authority, certificate


def endpoint_of(protocol: str, **given: str) -> Endpoint:
    """Build a listener; names of its own settings have underscores for dots."""
    pair = certificate("server", is_server=True)
    config = GatewayConfig(
        listener_addresses=f"{protocol}://127.0.0.1:1",
        ssl_truststore_certificates=authority().certificate,
        ssl_keystore_certificate_chain=pair.certificate,
        listener_settings=PrefixedSettings(
            {
                f"{protocol.lower()}.ssl.keystore.key": pair.key,
                **{
                    f"{protocol.lower()}.{name.replace('_', '.')}": text
                    for name, text in given.items()
                },
            }
        ),
    )
    (plan,) = plans_of(config)
    return make_endpoint(config, plan, Mechanisms(SeededEntropy(1)))


def test_every_protocol_has_what_it_needs() -> None:
    plaintext, ssl, sasl, both = (
        endpoint_of(each) for each in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    )
    assert [False, True, False, True] == [
        each.tls is not None for each in (plaintext, ssl, sasl, both)
    ]
    assert [[], []] == [list(each.mechanisms) for each in (plaintext, ssl)]
    names = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert [names, names] == [list(each.mechanisms) for each in (sasl, both)]


def test_a_listener_authenticates_with_logins_or_required_certificates() -> None:
    assert not endpoint_of("PLAINTEXT").authenticates
    assert not endpoint_of("SSL").authenticates
    assert not endpoint_of("SSL", ssl_client_auth="requested").authenticates
    assert endpoint_of("SSL", ssl_client_auth="required").authenticates
    assert endpoint_of("SASL_PLAINTEXT").authenticates


@pytest.mark.parametrize(
    ("protocol", "given", "message"),
    [
        ("SASL_SSL", {"sasl_enabled_mechanisms": ""}, "sasl.enabled.mechanisms: expected a mech"),
        ("SASL_SSL", {"sasl_enabled_mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms: .*'GSSAPI'"),
        ("SASL_SSL", {"ssl_keystore_key": "hush"}, "ssl.keystore.key: expected a private key"),
        ("SASL_SSL", {"ssl_client_auth": "hm"}, "listener SASL_SSL: ssl.client.auth: expected"),
        ("SSL", {"ssl_principal_mapping_rules": "x"}, "ssl.principal.mapping.rules: expected"),
        (
            "SASL_SSL",
            {"sasl_enabled_mechanisms": "PLAIN", "plain_sasl_jaas_config": "hush"},
            r"listener\.name\.sasl_ssl\.plain\.sasl\.jaas\.config: expected MODULE",
        ),
        (
            "SASL_SSL",
            {
                "sasl_enabled_mechanisms": "PLAIN",
                "plain_sasl_jaas_config": JAAS.replace("Plain", "Scram").replace("secret", "hush"),
            },
            r"plain\.sasl\.jaas\.config: expected the module PlainLoginModule",
        ),
        ("SASL_SSL", {"connections_max_reauth_ms": "x"}, "connections.max.reauth.ms: expected"),
    ],
)
def test_what_is_missing_ends_the_start_without_a_secret(
    protocol: str, given: dict[str, str], message: str
) -> None:
    with pytest.raises(ListenerMistake, match=message) as refused:
        endpoint_of(protocol, **given)
    assert "hush" not in str(refused.value)
