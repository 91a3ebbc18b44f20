"""kledger user on stopped stores."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from kledger.cli import run
from kledger.process import ServerProcess

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "password").write_text("hush hush\nsecond line\n")
    return tmp_path / "data"


def user(data: Path, verb: str, *words: str) -> int:
    return run(["user", verb, *words, "--data", str(data)])


def add(data: Path, name: str, *mechanisms: str) -> int:
    flags = [word for each in mechanisms for word in ("--mechanism", each)]
    return user(data, "add", name, *flags, "--password-file", str(data.parent / "password"))


def listed(data: Path, capsys: Capture) -> list[tuple[str, str, int]]:
    capsys.readouterr()
    assert 0 == user(data, "list", "--json")
    rows = json.loads(capsys.readouterr().out)
    return [(row["user"], row["mechanism"], row["iterations"]) for row in rows]


def test_users_are_added_listed_and_removed(data: Path, capsys: Capture) -> None:
    assert 0 == add(data, "alice", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert 0 == add(data, "bob", "PLAIN")
    assert [
        ("alice", "SCRAM-SHA-256", 4096),
        ("alice", "SCRAM-SHA-512", 4096),
        ("bob", "PLAIN", 16384),
    ] == listed(data, capsys)
    assert 0 == user(data, "remove", "alice", "--mechanism", "SCRAM-SHA-256")
    assert 0 == user(data, "remove", "bob")
    assert [("alice", "SCRAM-SHA-512", 4096)] == listed(data, capsys)
    assert 0 == user(data, "list")
    assert ["USER   MECHANISM      ITERATIONS", "alice  SCRAM-SHA-512        4096"] == (
        capsys.readouterr().out.splitlines()
    )


def test_removing_what_is_not_there_fails(data: Path, capsys: Capture) -> None:
    assert 0 == add(data, "alice", "PLAIN")
    assert 1 == user(data, "remove", "nobody")
    assert 1 == user(data, "remove", "alice", "--mechanism", "SCRAM-SHA-256")
    assert [("alice", "PLAIN", 16384)] == listed(data, capsys)


@pytest.mark.parametrize(
    ("name", "mechanism", "message"),
    [
        ("alice", "GSSAPI", "--mechanism: expected PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, got"),
        ("jürgen", "PLAIN", "expected printable ASCII characters in a user name"),
    ],
)
def test_a_mistake_is_one_line_and_makes_no_store(
    data: Path, capsys: Capture, name: str, mechanism: str, message: str
) -> None:
    assert 2 == add(data, name, mechanism)
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not data.exists()


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xffhush"])
def test_a_password_that_cannot_be_read_is_a_mistake(
    data: Path, capsys: Capture, content: bytes | None
) -> None:
    file = data.parent / "password"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    assert 2 == add(data, "alice", "PLAIN")
    error = capsys.readouterr().err
    assert "--password-file" in error
    assert "hush" not in error


def test_the_store_of_a_running_server_is_refused(data: Path, capsys: Capture) -> None:
    with ServerProcess("--data", str(data)):
        assert 2 == add(data, "alice", "PLAIN")
        assert "is in use" in capsys.readouterr().err


def test_a_folder_without_a_store_has_no_users(data: Path) -> None:
    assert 2 == user(data, "list")
    assert 2 == user(data, "remove", "alice")
    assert not data.exists()


def test_no_password_is_in_any_file_of_the_store(data: Path) -> None:
    assert 0 == add(data, "alice", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    for path in data.rglob("*"):
        assert not path.is_file() or b"hush" not in path.read_bytes()


def test_users_of_workers_are_those_of_all(data: Path, capsys: Capture) -> None:
    """They are in what the workers share, not in the store of one."""
    arguments = ("--data", str(data), "--workers", "2")
    with ServerProcess(*arguments):
        assert 2 == add(data, "alice", "SCRAM-SHA-256")
        assert f"kledger: data folder {data} is in use\n" == capsys.readouterr().err
    assert 0 == add(data, "alice", "SCRAM-SHA-256")
    assert [("alice", "SCRAM-SHA-256", 4096)] == listed(data, capsys)
    with ServerProcess(*arguments) as server:
        admin: Any = AdminClient({"bootstrap.servers": server.kafka_address})
        assert ["alice"] == list(admin.describe_user_scram_credentials().result(60))
    assert 0 == user(data, "remove", "alice")
    assert [] == listed(data, capsys)
