"""`kledger topic offload` and `offload-status` against a running server with a tier."""

from collections.abc import Iterator

import pytest

from kledger.cli.topic import first_kept
from kledger.native.broker import LedgerStats
from kledger.process import ServerProcess
from tests.kledger.cli.serving import Capture, Shell


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    url = f"offload.url=file://{tmp_path_factory.mktemp('tier')}"
    with ServerProcess("--memory", "--set", url, native="127.0.0.1:0") as running:
        yield running


@pytest.fixture
def topics(tiered: ServerProcess, capsys: Capture) -> Shell:
    return Shell(tiered.native_address, capsys, "topic")


def fill(topics: Shell, topic: str) -> None:
    """Seven ledgers of two messages, and the open one."""
    topics("create", topic, "--config", "internal.segment.bytes=150")
    topics.send(topic, *(b"%d" % number for number in range(15)))


def offloaded(topics: Shell, topic: str) -> list[bool]:
    (partition,) = topics("stats", topic, "--json").json["partitions"]
    return [each["offloaded"] for each in partition["ledgers"]]


def test_offload_all_closed_ledgers(topics: Shell, topic: str) -> None:
    fill(topics, topic)
    before = topics("offload-status", topic)
    assert (0, f"topic {topic}: not_run") == (before.code, before.out[0])
    result = topics("offload", topic)
    assert (0, [f"topic {topic}: success", "closed ledgers that are not offloaded: 0"]) == (
        result.code, result.out
    )  # fmt: skip
    *closed, last = offloaded(topics, topic)
    assert all(closed)
    assert not last
    found = topics("offload-status", topic, "--json").json
    assert {"topic": topic, "state": "success", "error": "", "ledgers_left": 0} == found


def test_offload_until_a_message(topics: Shell, topic: str) -> None:
    fill(topics, topic)
    (partition,) = topics("stats", topic, "--json").json["partitions"]
    third = partition["ledgers"][2]["ledger_id"]
    result = topics("offload", topic, "--until", f"{third}:1", "--json").json
    assert [f"{third}:0"] == result["ends"]
    assert [True, True, False] == offloaded(topics, topic)[:3]


def test_offload_all_but_some_bytes(topics: Shell, topic: str) -> None:
    fill(topics, topic)
    (partition,) = topics("stats", topic, "--json").json["partitions"]
    sizes = [each["size"] for each in partition["ledgers"]]
    assert 0 == topics("offload", topic, "--keep-bytes", sizes[-1] + 1).code
    assert [True] * (len(sizes) - 2) + [False, False] == offloaded(topics, topic)


@pytest.mark.parametrize(
    ("keep_bytes", "kept"), [(0, 4), (1, 4), (10, 4), (11, 3), (30, 3), (31, 2), (999, 1)]
)
def test_the_ledger_that_crosses_the_limit_stays(keep_bytes: int, kept: int) -> None:
    sizes = {1: 40, 2: 30, 3: 20, 4: 10}
    ledgers = [LedgerStats(id_, 1, size, 0, False, False) for id_, size in sizes.items()]
    assert kept == first_kept(ledgers, keep_bytes)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["offload", "nowhere"], "no topic is called 'nowhere'"),
        (["offload-status", "nowhere"], "no topic is called 'nowhere'"),
        (["offload", "x", "--until", "earliest"], "expected LEDGER:ENTRY, got 'earliest'"),
        (["offload", "x", "--keep-bytes", "-1"], "expected"),
        (["offload", "x", "--keep-bytes", "1", "--until", "1:0"], "not allowed with"),
    ],
)
def test_mistakes(topics: Shell, words: list[str], message: str) -> None:
    result = topics(*words)
    assert (2, [], 1) == (result.code, result.out, len(result.err)), result.err
    assert message in result.err[0]


def test_a_server_without_a_tier(server: ServerProcess, capsys: Capture, topic: str) -> None:
    topics = Shell(server.native_address, capsys, "topic")
    topics("create", topic)
    result = topics("offload", topic)
    assert (1, [], 1) == (result.code, result.out, len(result.err))
    assert "offload.url is not set" in result.err[0]
