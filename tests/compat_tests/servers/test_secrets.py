"""Secrets of settings, and the lines that show them."""

from compat_tests.servers.secrets import secrets_in, shown_secrets

SETTINGS = {
    "delegation.token.secret.key": "of-tokens",
    "ssl.key.password": "of-key",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": 'x.PlainLoginModule required user_a="of-a";',
    "sasl.jaas.config": 'x.ScramLoginModule required username="b" password="of-b";',
    "super.users": "User:a",
}


def test_passwords_and_keys_of_settings_are_secrets() -> None:
    assert {"of-tokens", "of-key", "of-a", "of-b"} == secrets_in(SETTINGS)


def test_a_line_with_a_secret_is_found() -> None:
    text = "started\nlogin of a with of-a failed\nof a\n"
    assert ["login of a with of-a failed"] == shown_secrets(text, secrets_in(SETTINGS))
    assert [] == shown_secrets(text, ())
