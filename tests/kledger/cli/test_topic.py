"""`kledger topic` against running servers."""

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kledger.cli import run
from kledger.process import ServerProcess
from tests.kledger.cli.serving import Capture, Shell, values_of


@pytest.fixture
def topics(server: ServerProcess, capsys: Capture) -> Shell:
    return Shell(server.native_address, capsys, "topic")


@pytest.fixture(scope="module")
def other() -> Iterator[ServerProcess]:
    with ServerProcess("--memory", native="127.0.0.1:0") as running:
        yield running


def test_create_list_stats_and_delete(topics: Shell, topic: str) -> None:
    result = topics("create", topic, "--partitions", 2, "--config", "retention.ms=1000")
    assert (0, [f"topic {topic}: created, partitions: 2"]) == (result.code, result.out)
    assert topic in topics("list").out
    assert topic in topics("list", "--json").json["topics"]
    headings, *lines = topics("stats", topic).out
    assert "PARTITION  LOG START  LOG END  BYTES" == headings
    assert [["0", "0", "0", "0"], ["1", "0", "0", "0"]] == [line.split() for line in lines]
    result = topics("delete", topic)
    assert (0, [f"topic {topic}: deleted"]) == (result.code, result.out)
    assert topic not in topics("list").out


def test_stats_as_json(topics: Shell, topic: str) -> None:
    topics.send(topic, b"a", b"b")
    found = topics("stats", topic, "--json").json
    [partition] = found["partitions"]
    assert (topic, []) == (found["name"], found["subscriptions"])
    assert (0, 0, 2) == (
        partition["partition"], partition["log_start_offset"], partition["end_offset"],
    )  # fmt: skip


def test_terminate(topics: Shell, topic: str) -> None:
    topics.send(topic, b"a", b"b")
    result = topics("terminate", topic)
    first, end = result.out
    assert (0, f"topic {topic}: terminated") == (result.code, first)
    assert end.startswith("partition 0 ends at ")
    assert end.endswith(":1")
    assert [end.split()[-1]] == topics("terminate", topic, "--json").json["ends"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stats", "nowhere"], "no topic is called 'nowhere'"),
        (["create", "a topic"], "a topic"),
        (["create", "x", "--partitions", "0"], "expected a number from 1 on, got '0'"),
        (["create", "x", "--config", "retention.ms"], "expected KEY=VALUE"),
        (["create", "x", "--config", "retention.ms=soon"], "retention.ms"),
        (["forward", "nowhere", "x"], "no topic is called 'nowhere'"),
        (["forward", "x", "x"], "topic x cannot be forwarded to itself"),
        (["forward", "x", "y", "--to", "nowhere"], "expected HOST:PORT, got 'nowhere'"),
        (["forward", "x", "y", "--from", "there"], "invalid choice"),
    ],
)
def test_mistakes(topics: Shell, words: list[str], message: str) -> None:
    result = topics(*words)
    assert (2, [], 1) == (result.code, result.out, len(result.err)), result.err
    assert message in result.err[0]


def test_a_topic_that_exists_is_a_mistake(topics: Shell, topic: str) -> None:
    assert 0 == topics("create", topic).code
    assert 2 == topics("create", topic).code


def test_forward_to_another_topic(topics: Shell, topic: str) -> None:
    copy = f"{topic}-copy"
    topics.send(topic, b"a", b"b", b"c")
    result = topics("forward", topic, copy, "--until-caught-up")
    assert (0, []) == (result.code, result.err)
    assert [f"topic {topic}: forwarded to {copy}, batches: 3"] == result.out
    topics.send(topic, b"d")
    result = topics("forward", topic, copy, "--until-caught-up", "--json")
    assert {"source": topic, "target": copy, "batches": 1} == result.json
    assert [b"a", b"b", b"c", b"d"] == values_of(topics.address, copy)
    assert f"subscription: forward-{copy}" in topics("stats", topic).out


def test_forward_to_another_server(topics: Shell, other: ServerProcess, topic: str) -> None:
    assert 0 == topics("create", topic, "--partitions", 3).code
    values = [b"%d" % number for number in range(30)]
    topics.send(topic, *values)
    result = topics(
        "forward", topic, topic, "--to", other.native_address, "--until-caught-up",
        "--subscription", "mine",
    )  # fmt: skip
    assert (0, []) == (result.code, result.err)
    assert sorted(values) == sorted(filter(None, values_of(other.native_address, topic)))
    assert "subscription: mine" in topics("stats", topic).out


def test_forward_ends_at_a_batch_that_the_target_refuses(topics: Shell, topic: str) -> None:
    copy = f"{topic}-copy"
    assert 0 == topics("create", copy, "--config", "max.message.bytes=200").code
    topics.send(topic, b"a", b"b" * 300, b"c")
    result = topics("forward", topic, copy)
    assert (1, [], 1) == (result.code, result.out, len(result.err))
    assert result.err[0].startswith(f"kledger: forwarding {topic}-0: cannot send ")
    assert result.err[0].endswith("expected at most 200")
    assert [b"a"] == values_of(topics.address, copy)
    result = topics.of("subscription")("stats", topic, f"forward-{copy}", "--json")
    assert 2 == result.json["backlog"]


def test_second_forwarder_of_a_subscription_is_refused(topics: Shell, topic: str) -> None:
    topics.send(topic, b"a")
    with Forwarding(topics.address, topic, f"{topic}-copy") as forwarding:
        forwarding.wait_for(f"{topic}-copy", 1)
        result = topics("forward", topic, f"{topic}-copy")
        assert (1, 1) == (result.code, len(result.err))
        assert 0 == forwarding.stop()[0]


@pytest.mark.slow
def test_address_without_a_server_is_a_failure_in_one_line(capsys: Capture) -> None:
    code = run(["topic", "list", "--native", "127.0.0.1:1"])
    assert (1, 1) == (code, capsys.readouterr().err.count("\n"))


class Forwarding:
    """`kledger topic forward` as a process."""

    def __init__(self, address: str, *words: str, to: str | None = None) -> None:
        self.to = to or address
        command = [sys.executable, "-P", "-m", "kledger", "topic", "forward", *words]
        command += ["--native", address, "--to", self.to]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def wait_for(self, topic: str, count: int) -> list[bytes | None]:
        """Wait until at least so many messages are there."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            assert self.process.poll() is None, self.process.communicate()[0]
            try:
                found = values_of(self.to, topic)
            except Exception:  # noqa: BLE001 - not made yet, or its server is down
                continue
            if len(found) >= count:
                return found
        raise AssertionError(f"{topic} has not got {count} messages")

    def stop(self) -> tuple[int, str]:
        """End it in order; return its exit code and what it said."""
        self.process.send_signal(signal.SIGTERM)
        said, _ = self.process.communicate(timeout=60)
        return self.process.returncode, said

    def __enter__(self) -> "Forwarding":
        return self

    def __exit__(self, *failure: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def test_forward_runs_until_a_signal(topics: Shell, topic: str) -> None:
    copy = f"{topic}-copy"
    topics.send(topic, b"a")
    with Forwarding(topics.address, topic, copy) as forwarding:
        assert [b"a"] == forwarding.wait_for(copy, 1)
        topics.send(topic, b"b")
        assert [b"a", b"b"] == forwarding.wait_for(copy, 2)
        code, said = forwarding.stop()
    assert (0, f"topic {topic}: forwarded to {copy}, batches: 2\n") == (code, said)


def test_forward_waits_for_a_target_that_is_down(
    topics: Shell, topic: str, unused_tcp_port: int
) -> None:
    topics.send(topic, b"a")
    there = f"127.0.0.1:{unused_tcp_port}"
    with Forwarding(topics.address, topic, topic, to=there) as forwarding:
        assert forwarding.process.stdout is not None
        said = forwarding.process.stdout.readline()
        assert said.startswith(f"kledger: retrying, as the server of {topic} is down: {there}: ")
        with ServerProcess("--memory", native=there):
            assert [b"a"] == forwarding.wait_for(topic, 1)
            assert 0 == forwarding.stop()[0]
    with Forwarding(topics.address, topic, topic, to=there) as forwarding:
        assert forwarding.process.stdout is not None
        forwarding.process.stdout.readline()
        code, said = forwarding.stop()
    assert (0, f"topic {topic}: forwarded to {topic}, batches: 0\n") == (code, said)


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["source", "target", "forwarder"])
def test_forward_continues_when_one_of_three_was_killed(
    tmp_path: Path, capsys: Capture, killed: str
) -> None:
    """At least once and in order: nothing is passed over, and what comes twice comes in order."""
    values = [b"%d" % number for number in range(300)]
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(
                ServerProcess("--data", str(tmp_path / name), native="127.0.0.1:0")
            )
            for name in ("source", "target")
        }
        source = Shell(servers["source"].native_address, capsys, "topic")
        to = servers["target"].native_address
        source.send("orders", *values[:200])
        forwarding = stack.enter_context(Forwarding(source.address, "orders", "copy", to=to))
        forwarding.wait_for("copy", 1)
        if killed == "forwarder":
            forwarding.process.kill()
            forwarding = stack.enter_context(Forwarding(source.address, "orders", "copy", to=to))
        else:
            address = servers[killed].native_address
            servers[killed].kill()
            again = ServerProcess("--data", str(tmp_path / killed), native=address)
            stack.enter_context(again)
        source.send("orders", *values[200:])
        found = forwarding.wait_for("copy", 300)
        while found[-1] != values[-1]:
            found = forwarding.wait_for("copy", len(found) + 1)
        assert 0 == forwarding.stop()[0]
    numbers = [int(each or -1) for each in found]
    assert 0 == numbers[0]
    assert all(after <= before + 1 for before, after in itertools.pairwise(numbers))
    assert set(range(300)) == set(numbers)
