"""`kledger namespace`, and policies with `kledger topic`, against a running server."""

import pytest

from kledger.process import ServerProcess
from tests.kledger.cli.serving import Capture, Shell

PRIORITY = "managedLedgerDataReadPriority"
LAG = "managedLedgerOffloadDeletionLagMs"


@pytest.fixture
def namespaces(server: ServerProcess, capsys: Capture) -> Shell:
    return Shell(server.native_address, capsys, "namespace")


def test_create_list_and_delete(namespaces: Shell, topic: str) -> None:
    name = f"shop/{topic}"
    result = namespaces("create", name)
    assert (0, [f"namespace {name}: created"]) == (result.code, result.out)
    assert {"public/default", name} <= set(namespaces("list").out)
    assert name in namespaces("list", "--json").json["namespaces"]
    topics = namespaces.of("topic")
    assert 0 == topics("create", f"{name}/orders").code
    refused = namespaces("delete", name)
    assert (1, 1) == (refused.code, len(refused.err))
    assert "has topics" in refused.err[0]
    assert 0 == topics("delete", f"{name}/orders").code
    result = namespaces("delete", name)
    assert (0, [f"namespace {name}: deleted"]) == (result.code, result.out)
    assert name not in namespaces("list").out


@pytest.mark.parametrize("noun", ["namespace", "topic"])
def test_read_priority(namespaces: Shell, topic: str, noun: str) -> None:
    shell = namespaces.of(noun)
    name = f"shop/{topic}" if noun == "namespace" else topic
    shell("create", name)

    def shown() -> tuple[int, list[str]]:
        found = shell("get-data-read-priority", name)
        return found.code, found.out

    assert (0, ["not set"]) == shown()
    assert shell("get-data-read-priority", name, "--json").json[PRIORITY] is None
    result = shell("set-data-read-priority", "tiered-storage-first", name)
    assert (0, [f"{noun} {name}: {PRIORITY} is tiered-storage-first"]) == (result.code, result.out)
    assert (0, ["tiered-first"]) == shown()
    assert 0 == shell("set-data-read-priority", "bookkeeper-first", name).code
    assert (0, ["bookkeeper-first"]) == shown()
    result = shell("remove-data-read-priority", name)
    assert (0, [f"{noun} {name}: {PRIORITY} removed"]) == (result.code, result.out)
    assert (0, ["not set"]) == shown()


@pytest.mark.parametrize("noun", ["namespace", "topic"])
def test_policies(namespaces: Shell, topic: str, noun: str) -> None:
    shell = namespaces.of(noun)
    name = f"shop/{topic}" if noun == "namespace" else topic
    shell("create", name)
    assert 0 == shell("set-policy", f"{LAG}=5", "compactionThreshold=6", name).code
    assert ["compactionThreshold=6", f"{LAG}=5"] == shell("policies", name).out
    found = shell("policies", name, "--json").json
    assert {noun: name, "policies": {LAG: "5", "compactionThreshold": "6"}} == found
    assert 0 == shell("remove-policy", LAG, name).code
    assert ["compactionThreshold=6"] == shell("policies", name).out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["create", "shop"], "expected TENANT/NAMESPACE, got 'shop'"),
        (["create", "shop/a b"], "shop/a b"),
        (["create", "public/default"], "already exists"),
        (["delete", "shop/nowhere"], "namespace 'shop/nowhere' does not exist"),
        (["policies", "a/b/c"], "expected TENANT/NAMESPACE, got 'a/b/c'"),
        (["policies", "shop/nowhere"], "does not exist"),
        (["set-policy", "x", "public/default"], "expected KEY=VALUE"),
        (["set-policy", "x=1", "public/default"], f"expected one of {PRIORITY}"),
        (["set-policy", f"{LAG}=soon", "public/default"], LAG),
        (["remove-policy", "x", "public/default"], f"expected one of {PRIORITY}"),
        (["set-data-read-priority", "x", "public/default"], "tiered-first, bookkeeper-first"),
        (["get-data-read-priority", "shop/nowhere"], "does not exist"),
    ],
)
def test_mistakes(namespaces: Shell, words: list[str], message: str) -> None:
    result = namespaces(*words)
    assert (2, [], 1) == (result.code, result.out, len(result.err)), result.err
    assert message in result.err[0]
