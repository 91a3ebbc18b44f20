"""kledger user and kledger acl on a running server, with TLS and a login."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kledger.cli import run
from kledger.process import ServerProcess
from tests.kledger.cli.test_security import client_of, init, properties_of

Capture = pytest.CaptureFixture[str]
READ = ("--allow", "User:ann", "--operation", "Read", "--topic", "orders")


class Secured:
    """A running server of `kledger security init`, and a command line that logs in as its user."""

    def __init__(self, data: Path, address: str, capsys: Capture) -> None:
        self.data, self.address = data, address
        self._capsys = capsys

    def __call__(self, *words: str) -> int:
        client = str(self.data / "security" / "client.properties")
        return run([*words, "--kafka", self.address, "--command-config", client])

    def listed(self, noun: str) -> list[tuple[object, ...]]:
        self._capsys.readouterr()
        assert 0 == self(noun, "list", "--json")
        return [tuple(row.values()) for row in json.loads(self._capsys.readouterr().out)]


@pytest.fixture(scope="module")
def secured_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    data = tmp_path_factory.mktemp("secured") / "data"
    assert 0 == init(data)
    config = data / "security" / "kledger.toml"
    with ServerProcess("--data", str(data), "--config", str(config)) as server:
        yield data, server.kafka_address


@pytest.fixture
def secured(secured_folder: tuple[Path, str], capsys: Capture) -> Secured:
    return Secured(*secured_folder, capsys)


def password_file(folder: Path) -> str:
    file = folder / "password"
    file.write_text("hush hush\n")
    return str(file)


def test_users_are_added_listed_and_removed(secured: Secured, tmp_path: Path) -> None:
    password = ("--password-file", password_file(tmp_path))
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512")
    assert 0 == secured("user", "add", "ann", *both, *password)
    mine = [("ann", "SCRAM-SHA-256", 4096), ("ann", "SCRAM-SHA-512", 4096)]
    assert mine == [each for each in secured.listed("user") if each[0] == "ann"]
    rule = ("--allow", "User:ann", "--operation", "Describe", "--cluster")
    assert 0 == secured("acl", "add", *rule)
    login = {"sasl.username": "ann", "sasl.password": "hush hush"}
    client = client_of(secured.address, properties_of(secured.data), **login)
    assert client.list_topics(timeout=60).brokers, "the new user logs in"
    assert 0 == secured("user", "remove", "ann", "--mechanism", "SCRAM-SHA-256")
    assert 0 == secured("user", "remove", "ann")
    assert 1 == secured("user", "remove", "ann"), "it is gone"
    assert 0 == secured("acl", "remove", *rule)


def test_users_of_plain_are_added_while_the_server_is_stopped(
    secured: Secured, tmp_path: Path, capsys: Capture
) -> None:
    password = ("--password-file", password_file(tmp_path))
    assert 2 == secured("user", "add", "ann", "--mechanism", "PLAIN", *password)
    expected = "--mechanism: expected SCRAM-SHA-256, SCRAM-SHA-512, got 'PLAIN'"
    assert f"kledger: {expected}\n" == capsys.readouterr().err


def test_rules_are_added_listed_and_removed(secured: Secured) -> None:
    assert 0 == secured("acl", "add", *READ, "--operation", "Write")
    assert [
        ("User:ann", "*", "Allow", "Read", "topic", "literal", "orders"),
        ("User:ann", "*", "Allow", "Write", "topic", "literal", "orders"),
    ] == secured.listed("acl")
    assert 0 == secured("acl", "remove", *READ, "--operation", "Write")
    assert [] == secured.listed("acl")
    assert 1 == secured("acl", "remove", *READ), "it is gone"


def test_a_login_that_is_refused_is_one_line(
    secured: Secured, tmp_path: Path, capsys: Capture
) -> None:
    properties = (secured.data / "security" / "client.properties").read_text()
    config = tmp_path / "client.properties"
    config.write_text(properties.replace('username="admin"', 'username="nobody"'))
    target = ("--kafka", secured.address, "--command-config", str(config))
    assert 1 == run(["acl", "list", *target])
    (line,) = capsys.readouterr().err.splitlines()
    assert "login with SCRAM-SHA-512" in line
    assert "SASL_AUTHENTICATION_FAILED" in line


def test_a_server_that_is_not_there_is_one_line(capsys: Capture) -> None:
    assert 1 == run(["user", "list", "--kafka", "127.0.0.1:1"])
    (line,) = capsys.readouterr().err.splitlines()
    assert "127.0.0.1:1 cannot be reached" in line


def test_rules_of_a_server_without_an_authorizer_are_refused(
    tmp_path: Path, capsys: Capture
) -> None:
    with ServerProcess("--data", str(tmp_path)) as server:
        assert 1 == run(["acl", "list", "--kafka", server.kafka_address])
    assert "SECURITY_DISABLED" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--data"),
        (("--kafka", "somewhere"), "expected HOST:PORT, got 'somewhere'"),
        (("--kafka", "127.0.0.1:1", "--data", "folder"), "not allowed with argument"),
        (("--kafka", "127.0.0.1:1", "--command-config", "missing"), "--command-config"),
    ],
)
def test_where_is_one_place(capsys: Capture, words: tuple[str, ...], message: str) -> None:
    assert 2 == run(["user", "list", *words])
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
