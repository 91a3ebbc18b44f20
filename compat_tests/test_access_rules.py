"""Access rules with Apache Kafka's own tools, each as a user who has logged in.

A rule is in force when `kafka-acls` has ended, and gone when the rule is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.conftest import Tool, make_kledger
from compat_tests.settings import STANDARD_AUTHORIZER
from compat_tests.test_java_tools import TOOLS

pytestmark = pytest.mark.peer("kafka-java-tools")
ACLS = f"{TOOLS}.AclCommand"
TOPICS = f"{TOOLS}.TopicCommand"
USERS = ("admin", "alice")


@pytest.fixture(scope="module")
def guarded(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, dict[str, Path]]]:
    """A server with users and rules; its address, and the properties of each user's clients."""
    folder = tmp_path_factory.mktemp("guarded")
    server = make_kledger(pytestconfig, folder, durability="os")
    # Without a login, a client may do nothing; the start waits for an answer there.
    address = server.listen_as("PLAINTEXT", "SASL_PLAINTEXT")["SASL_PLAINTEXT"]
    users = " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    server.settings |= {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} {users};",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
    }
    files = {name: folder / f"{name}.properties" for name in USERS}
    for name, file in files.items():
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={module} username="{name}" password="{name}-secret";\n'
        )
    with server:
        yield address, files


@pytest.mark.feature("acls: rules are added, listed and removed, and bind")
def test_rules_bind_users_as_long_as_they_are_there(
    java: Tool, guarded: tuple[str, dict[str, Path]]
) -> None:
    bootstrap, files = guarded

    def run(tool: str, user: str, *arguments: str, expect: int = 0) -> str:
        place = ("--bootstrap-server", bootstrap, "--command-config", str(files[user]))
        return java(tool, *place, *arguments, expect=expect)

    def topics_of(user: str) -> list[str]:
        return run(TOPICS, user, "--list").split()

    for name in ("orders", "orders-old", "other"):
        run(TOPICS, "admin", "--create", "--topic", name)
    assert ["orders", "orders-old", "other"] == topics_of("admin")
    assert [] == topics_of("alice")
    run(TOPICS, "alice", "--create", "--topic", "mine", expect=1)

    rule = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    run(ACLS, "admin", "--add", *rule, "--resource-pattern-type", "prefixed")
    denial = ("--deny-principal", "User:alice", "--operation", "All", "--topic", "orders-old")
    run(ACLS, "admin", "--add", *denial)
    assert ["orders"] == topics_of("alice")
    listed = run(ACLS, "admin", "--list")
    assert "resourceType=TOPIC, name=orders, patternType=PREFIXED" in listed
    assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in listed
    assert "principal=User:alice, host=*, operation=ALL, permissionType=DENY" in listed
    matching = ("--topic", "orders-old", "--resource-pattern-type", "match")
    assert "PREFIXED" in run(ACLS, "admin", "--list", *matching)
    run(ACLS, "alice", "--list", expect=1)
    run(ACLS, "alice", "--add", *rule, expect=1)

    gone = ("--topic", "orders", "--resource-pattern-type", "prefixed")
    run(ACLS, "admin", "--remove", "--force", *gone)
    assert [] == topics_of("alice")


@pytest.mark.feature("acls: rules of producers, consumers and transactional ids")
def test_rules_of_producers_and_consumers_are_enough_for_them(
    java: Tool, guarded: tuple[str, dict[str, Path]]
) -> None:
    bootstrap, files = guarded
    place = ("--bootstrap-server", bootstrap)
    admin = (*place, "--command-config", str(files["admin"]))
    alice = (*place, "--command-config", str(files["alice"]))
    principal = ("--add", "--allow-principal", "User:alice", "--topic", "used")
    java(ACLS, *admin, *principal, "--producer", "--transactional-id", "x")
    java(ACLS, *admin, *principal, "--consumer", "--group", "readers")
    java(TOPICS, *admin, "--create", "--topic", "used")
    sent = java(
        f"{TOOLS}.ProducerPerformance",
        *(*alice, "--topic", "used", "--num-records", "20", "--record-size", "10"),
        *("--throughput", "-1", "--transactional-id", "x"),
    )
    assert "20 records sent" in sent
    consumer = (
        *(*alice, "--topic", "used", "--from-beginning", "--max-messages", "20"),
        *("--isolation-level", "read_committed"),
    )
    tool = f"{TOOLS}.consumer.ConsoleConsumer"
    assert 20 == len(java(tool, *consumer, "--group", "readers").split())
    assert [] == java(tool, *consumer, "--group", "others").split(), "the tool ends with 0"
