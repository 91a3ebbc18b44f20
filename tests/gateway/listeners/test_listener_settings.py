"""Of several places the most particular one counts, and nothing is given in vain."""

import pytest

from kledger.gateway.config import GatewayConfig, PrefixedSettings
from kledger.gateway.listeners.listener_plan import ListenerMistake
from kledger.gateway.listeners.listener_settings import ListenerSettings, plans_of
from kledger.security.secret_text import SecretText

SESSION = "connections.max.reauth.ms"


def config_of(**given: str) -> GatewayConfig:
    return GatewayConfig(
        listener_addresses="SASL_SSL://h:1,INSIDE://h:2",
        listener_security_protocol_map="SASL_SSL:SASL_SSL,INSIDE:SASL_PLAINTEXT",
        connections_max_reauth_ms=1,
        listener_settings=PrefixedSettings(given),
    )


def test_the_most_particular_setting_wins() -> None:
    config = config_of(
        **{f"sasl_ssl.{SESSION}": "2", f"sasl_ssl.plain.{SESSION}": "3", f"inside.{SESSION}": "4"}
    )
    outside, inside = ListenerSettings(config, "SASL_SSL"), ListenerSettings(config, "INSIDE")
    assert [3, 2, 2] == [outside.number(SESSION, each) for each in ("PLAIN", "SCRAM-SHA-256", "")]
    assert [4, 4] == [inside.number(SESSION, each) for each in ("PLAIN", "")]
    assert 1 == ListenerSettings(config_of(), "INSIDE").number(SESSION, "PLAIN")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("outside.ssl.client.auth", "there is no listener 'outside', expected one of inside, sasl"),
        ("inside.num.partitions", "a listener has no such setting"),
        ("inside.ssl.no.such", "a listener has no such setting"),
        ("inside.plain.ssl.no.such", "a listener has no such setting"),
        ("inside", "a listener has no such setting"),
    ],
)
def test_a_setting_that_nothing_would_read_is_a_mistake(name: str, message: str) -> None:
    with pytest.raises(ListenerMistake, match=rf"listener\.name\.{name}: {message}"):
        plans_of(config_of(**{name: "secret"}))


def test_a_number_that_is_none_is_a_mistake() -> None:
    settings = ListenerSettings(config_of(**{f"inside.{SESSION}": "soon"}), "INSIDE")
    with pytest.raises(ListenerMistake, match=f"{SESSION}: expected a whole number, got 'soon'"):
        settings.number(SESSION)


def test_the_listener_between_brokers_must_exist() -> None:
    config = config_of()
    config.inter_broker_listener_name = "inside"
    assert 2 == len(plans_of(config))
    config.inter_broker_listener_name = "other"
    with pytest.raises(ListenerMistake, match=r"inter\.broker\.listener\.name: expected one of"):
        plans_of(config)


def test_advertised_addresses_need_listeners() -> None:
    with pytest.raises(ListenerMistake, match=r"advertised\.listeners: expected the names"):
        plans_of(GatewayConfig(advertised_addresses="SSL://h:1"))


def test_secrets_are_in_no_text_of_the_configuration() -> None:
    config = GatewayConfig(
        ssl_key_password=SecretText("hush"),
        sasl_jaas_config=SecretText("hush"),
        ssl_keystore_key=SecretText("hush"),
        listener_settings=PrefixedSettings({"inside.ssl.key.password": "hush"}),
    )
    assert "hush" not in repr(config)
    assert "hush" not in f"{config.listener_settings} {config.ssl_key_password!r}"
