"""kledger acl on stopped stores."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kledger.cli import run
from kledger.process import ServerProcess
from kledger.security.authorizer import STANDARD_AUTHORIZER

Capture = pytest.CaptureFixture[str]
READ = ("--allow", "User:ann", "--operation", "Read", "--topic", "orders")


def acl(data: Path, verb: str, *words: str) -> int:
    return run(["acl", verb, "--data", str(data), *words])


def listed(data: Path, capsys: Capture) -> list[tuple[str, ...]]:
    capsys.readouterr()
    assert 0 == acl(data, "list", "--json")
    return [tuple(row.values()) for row in json.loads(capsys.readouterr().out)]


def test_rules_are_added_listed_and_removed(tmp_path: Path, capsys: Capture) -> None:
    data = tmp_path / "data"
    assert 0 == acl(data, "add", *READ, "--operation", "describeconfigs")
    denial = ("--deny", "User:*", "--operation", "All", "--group", "g", "--prefixed")
    assert 0 == acl(data, "add", *denial, "--host", "10.0.0.7")
    assert 0 == acl(data, "add", "--allow", "User:ann", "--operation", "Create", "--cluster")
    assert [
        ("User:*", "10.0.0.7", "Deny", "All", "group", "prefixed", "g"),
        ("User:ann", "*", "Allow", "Create", "cluster", "literal", "kafka-cluster"),
        ("User:ann", "*", "Allow", "DescribeConfigs", "topic", "literal", "orders"),
        ("User:ann", "*", "Allow", "Read", "topic", "literal", "orders"),
    ] == listed(data, capsys)
    assert 0 == acl(data, "remove", *READ)
    assert 3 == len(listed(data, capsys))
    assert 1 == acl(data, "remove", *READ), "it is gone"
    assert 0 == acl(data, "list")
    heading, first, *_ = capsys.readouterr().out.splitlines()
    assert "PRINCIPAL  HOST      PERMISSION  OPERATION        RESOURCE  PATTERN   NAME" == heading
    assert "User:*     10.0.0.7  Deny        All              group     prefixed  g" == first


def test_a_rule_that_is_there_stays(tmp_path: Path, capsys: Capture) -> None:
    for _ in range(2):
        assert 0 == acl(tmp_path / "data", "add", *READ)
    assert 1 == len(listed(tmp_path / "data", capsys))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--allow", "ann", "--operation", "Read", "--topic", "t"), "Could not parse principal"),
        (
            ("--allow", "User:a", "--operation", "Read", "--cluster"),
            "ClusterAction, DescribeConfigs, AlterConfigs, IdempotentWrite, All; got 'Read'",
        ),
        (("--allow", "User:a", "--operation", "Create", "--cluster", "--prefixed"), "--prefixed"),
        (("--allow", "User:a", "--operation", "Read", "--topic", "persistent://a/b/c"), "spelling"),
        (("--allow", "User:a", "--operation", "Read"), "--topic"),
        (("--operation", "Read", "--topic", "t"), "--allow"),
    ],
)
def test_mistakes_change_nothing(
    tmp_path: Path, capsys: Capture, words: tuple[str, ...], message: str
) -> None:
    assert 2 == acl(tmp_path / "data", "add", *words)
    said = capsys.readouterr().err
    assert message in said
    assert 1 == said.count("\n")
    assert not (tmp_path / "data").exists()


def test_a_store_in_use_or_missing_is_a_mistake(tmp_path: Path, capsys: Capture) -> None:
    assert 2 == acl(tmp_path / "nothing", "list")
    with ServerProcess("--data", str(tmp_path / "data")):
        assert 2 == acl(tmp_path / "data", "add", *READ)
    assert 0 == acl(tmp_path / "data", "add", *READ)
    assert 1 == len(listed(tmp_path / "data", capsys))


def test_rules_of_workers_are_those_of_all(tmp_path: Path, capsys: Capture) -> None:
    """They are in what the workers share, not in the store of one."""
    data = tmp_path / "data"
    settings = tmp_path / "kledger.toml"
    settings.write_text(
        f'[kafka]\nauthorizer.class.name = "{STANDARD_AUTHORIZER}"\n'
        'super.users = "User:ANONYMOUS"\n'
    )
    arguments = ("--data", str(data), "--workers", "2", "--config", str(settings))
    with ServerProcess(*arguments):
        assert 2 == acl(data, "add", *READ)
        assert f"kledger: data folder {data} is in use\n" == capsys.readouterr().err
    assert 0 == acl(data, "add", *READ)
    with ServerProcess(*arguments) as server:
        admin: Any = AdminClient({"bootstrap.servers": server.kafka_address})
        wanted: Any = AclBindingFilter  # its stub does not know None
        every = wanted(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None,
            AclOperation.ANY, AclPermissionType.ANY,
        )  # fmt: skip
        (rule,) = admin.describe_acls(every).result(60)
        assert ("orders", "User:ann") == (rule.name, rule.principal)
    assert [("User:ann", "*", "Allow", "Read", "topic", "literal", "orders")] == listed(
        data, capsys
    )
