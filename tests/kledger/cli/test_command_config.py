"""The file of --command-config: Kafka's client properties, and commands that log in with them."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from kledger.cli import run
from kledger.cli.command_config import (
    CommandConfigMistake,
    parse_properties,
    read_command_config,
)
from kledger.testing import ServerThread
from tests.kledger.test_listener_logins import settings_of
from tests.security.certificates import Identity, authority

SCRAM = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="ann" password="s3cret";'
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# a=1\n  ! b=2\n\na=1", {"a": "1"}),
        ("a = 1 \nb: 2\nc 3\nd", {"a": "1 ", "b": "2", "c": "3", "d": ""}),
        ("a=1,\\\n   2\nb=x\\\\\nc=3", {"a": "1,2", "b": "x\\", "c": "3"}),
        ("a\\=b=c\\:d\\u0041\\n", {"a=b": "c:dA\n"}),
        ('sasl.jaas.config=m required p="a=b";', {"sasl.jaas.config": 'm required p="a=b";'}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert expected == dict(parse_properties(text))


def written(folder: Path, **properties: str) -> Path:
    file = folder / "client.properties"
    lines = [f"{name.replace('_', '.')}={value}" for name, value in properties.items()]
    file.write_text("bootstrap.servers=ignored:1\n" + "\n".join(lines))
    return file


def store(folder: Path, identity: Identity, password: bytes = b"") -> Path:
    """A keystore, encrypted with a password if there is one."""
    key = identity.key
    if password:
        found = serialization.load_pem_private_key(key.encode(), None)
        key = found.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password),
        ).decode()
    file = folder / "keystore.pem"
    file.write_text(key + identity.certificate)
    return file


def test_without_a_file_or_security_nothing_is_encrypted(tmp_path: Path) -> None:
    for config in (read_command_config(None), read_command_config(written(tmp_path))):
        assert ("kledger://", {}) == (config.scheme, config.options())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_user_and_password_are_those_of_the_jaas_line(tmp_path: Path, mechanism: str) -> None:
    (tmp_path / "ca.pem").write_text(f"comment\n{authority().pem}")
    config = read_command_config(
        written(
            tmp_path,
            security_protocol="sasl_ssl",
            sasl_mechanism=mechanism,
            sasl_jaas_config=SCRAM,
            ssl_truststore_type="PEM",
            ssl_truststore_location=str(tmp_path / "ca.pem"),
        )
    )
    expected = {"username": "ann", "password": "s3cret", "ca": authority().pem.strip()}
    assert ("kledger+tls://", expected) == (config.scheme, config.options())
    assert "s3cret" not in repr(config)


@pytest.mark.parametrize("password", [b"", b"key-pw"])
def test_a_keystore_is_certificate_and_key(tmp_path: Path, password: bytes) -> None:
    identity = authority().issue("ann")
    config = read_command_config(
        written(
            tmp_path,
            security_protocol="SSL",
            ssl_keystore_type="PEM",
            ssl_keystore_location=str(store(tmp_path, identity, password)),
            ssl_key_password=password.decode(),
        )
    )
    options = config.options()
    assert identity.certificate.strip() == options["certificate"]
    assert identity.key.strip() == options["key"].strip()


def test_an_access_token_is_in_the_file_of_its_url(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b.c\n")
    config = read_command_config(
        written(
            tmp_path,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=(tmp_path / "token").as_uri(),
        )
    )
    assert ("kledger://", {"token": "a.b.c"}) == (config.scheme, config.options())


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({"security_protocol": "TLS"}, "security.protocol"),
        ({"security_protocol": "SASL_SSL"}, "sasl.mechanism: .*GSSAPI"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "sasl.jaas.config"),
        (
            {
                "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": 'm required password="s3cret";',
            },
            "username",
        ),
        (
            {
                "security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_jaas_config": SCRAM.replace(";", ' tokenauth="true";'),
            },
            "delegation token",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            "sasl.oauthbearer.token.endpoint.url",
        ),
        ({"security_protocol": "SSL", "ssl_truststore_location": "x.jks"}, "store.type: .*PEM"),
        (
            {
                "security_protocol": "SSL", "ssl_truststore_type": "PEM",
                "ssl_truststore_location": "/nowhere",
            },
            "ssl.truststore.location: /nowhere: No such file",
        ),
        (
            {
                "security_protocol": "SSL", "ssl_truststore_type": "PEM",
                "ssl_truststore_certificates": "x",
            },
            "ssl.truststore",
        ),
        (
            {
                "security_protocol": "SSL", "ssl_keystore_type": "PEM",
                "ssl_keystore_certificate_chain": "x",
            },
            "ssl.keystore",
        ),
    ],
)  # fmt: skip
def test_a_mistake_names_file_and_property_and_no_secret(
    tmp_path: Path, properties: dict[str, str], error: str
) -> None:
    with pytest.raises(CommandConfigMistake, match=f"client.properties: .*{error}") as caught:
        read_command_config(written(tmp_path, **properties))
    assert "s3cret" not in str(caught.value)


def test_a_wrong_password_of_a_key_is_not_shown(tmp_path: Path) -> None:
    keystore = store(tmp_path, authority().issue("ann"), b"key-pw")
    for password in ("wrong-pw", ""):
        file = written(
            tmp_path,
            security_protocol="SSL",
            ssl_keystore_type="PEM",
            ssl_keystore_location=str(keystore),
            ssl_key_password=password,
        )
        with pytest.raises(CommandConfigMistake, match=r"ssl\.key\.password") as caught:
            read_command_config(file)
        assert "wrong-pw" not in str(caught.value)


def test_a_file_that_is_not_there_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nowhere"
    assert 2 == run(["topic", "list", "--command-config", str(file)])
    assert (
        f"kledger: --command-config: {file}: No such file or directory\n" == capsys.readouterr().err
    )


def test_commands_log_in_with_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trusted.pem").write_text(authority().pem)
    with ServerThread(native="127.0.0.1:0", settings=settings_of(tmp_path)) as server:

        def run_as(user: str, *command: str) -> int:
            login = SCRAM.replace("ann", user).replace("s3cret", f"{user}-pw")
            file = written(
                tmp_path,
                security_protocol="SASL_SSL",
                sasl_mechanism="PLAIN",
                sasl_jaas_config=login,
                ssl_truststore_type="PEM",
                ssl_truststore_location=str(tmp_path / "trusted.pem"),
            )
            flags = ["--native", server.native_address, "--command-config", str(file)]
            return run([*command, *flags])

        assert 0 == run_as("admin", "topic", "create", "orders")
        assert 0 == run_as("admin", "topic", "list")
        assert "orders" in capsys.readouterr().out
        assert 0 == run_as("ann", "topic", "list")
        assert "orders" not in capsys.readouterr().out
        assert 1 == run_as("ann", "topic", "delete", "orders")
        assert "User:ann is not allowed to DELETE TOPIC orders" in capsys.readouterr().err
        assert 1 == run_as("nobody", "topic", "list")
        assert 0 == run_as("admin", "topic", "forward", "orders", "copies", "--until-caught-up")
