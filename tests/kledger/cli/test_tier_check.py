"""`kledger doctor --tier` and `kledger ledger verify --tier` on a store with offloaded ledgers."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from compat_tests.deadlines import rounds
from kledger import sync
from kledger.cli import run

SENT = 20


class TieredStore(NamedTuple):
    """A stopped store, and the folder of its tier."""

    data: Path
    tier: Path

    def objects(self, ending: str) -> list[Path]:
        """The objects whose names end so, in order of their ledgers."""
        found = self.tier.rglob(f"*{ending}")
        return sorted(found, key=lambda each: int(each.name.rpartition(ending)[0].split("-")[-1]))


@pytest.fixture
def stopped(tmp_path: Path) -> TieredStore:
    """A topic whose closed ledgers are in the tier."""
    store = TieredStore(tmp_path / "data", tmp_path / "tier")
    store.tier.mkdir()
    settings = {"offload.url": f"file://{store.tier}"}
    with sync.embedded(store.data, settings=settings) as client:
        client.create_topic("orders", config={"segment.bytes": str(1 << 20)})
        with client.create_producer("orders") as producer:
            for number in range(SENT):
                producer.send(b"%d:" % number + bytes(300_000))
        client.offload("orders")
    return store


def check(*arguments: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Run a command; return exit code and lines."""
    code = run([str(each) for each in arguments])
    captured = capsys.readouterr()
    return code, (captured.out + captured.err).splitlines()


def test_whole_copies(stopped: TieredStore, capsys: pytest.CaptureFixture[str]) -> None:
    copies = len(stopped.objects("-index"))
    assert copies > 2
    for command in (["doctor"], ["ledger", "verify"]):
        code, lines = check(*command, "--data", stopped.data, "--tier", capsys=capsys)
        assert (0, f"tier: nothing is damaged: checked {copies} copies of ledgers") == (
            code, lines[-1],
        )  # fmt: skip
    code, lines = check("doctor", "--data", stopped.data, capsys=capsys)
    assert (0, False) == (code, any("tier" in line for line in lines))


def test_one_managed_ledger(stopped: TieredStore, capsys: pytest.CaptureFixture[str]) -> None:
    (stopped.tier / "stray").write_bytes(b"")
    code, lines = check(
        "ledger", "verify", "--data", stopped.data, "--tier", "--json", "orders-0", capsys=capsys
    )
    tier = json.loads("\n".join(lines))["tier"]
    copies = len(stopped.objects("-index"))
    assert (0, {"copies": copies, "problems": []}) == (code, tier)


def test_damaged_missing_and_stray_objects(
    stopped: TieredStore, capsys: pytest.CaptureFixture[str]
) -> None:
    indexes = stopped.objects("-index")
    damaged = indexes[0].with_name(indexes[0].name.removesuffix("-index"))
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    indexes[1].unlink()
    (stopped.tier / "stray").write_bytes(b"")
    code, lines = check("doctor", "--data", stopped.data, "--tier", capsys=capsys)
    problems = [line for line in lines if line.startswith("tier: ")]
    assert 1 == code
    assert 4 == len(problems)
    assert "orders-0, ledger" in problems[0]
    assert "expected checksum" in problems[0]
    assert f"{indexes[1].name} not found" in problems[1]
    assert f"file://{stopped.tier}: stray belongs to no ledger" in problems[2]
    assert f"tier: 3 problems: checked {len(indexes)} copies of ledgers" == problems[3]


def test_tier_that_is_gone(stopped: TieredStore, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(stopped.tier)
    code, lines = check("doctor", "--data", stopped.data, "--tier", capsys=capsys)
    assert 1 == code
    assert "problems: checked" in lines[-1]


def test_mistake_in_a_setting(stopped: TieredStore, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["--tier", "--set", "offload.urls=file:///somewhere"]
    code, lines = check("doctor", "--data", stopped.data, *wrong, capsys=capsys)
    assert 2 == code
    assert "offload.urls: there is no such setting" in lines[-1]


def test_what_only_the_tier_has_is_dumped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without `--tier` it is named and left out; with it nothing is missing."""
    store = TieredStore(tmp_path / "data", tmp_path / "tier")
    store.tier.mkdir()
    settings = {
        "offload.url": f"file://{store.tier}",
        "managedLedgerOffloadDeletionLagMs": "0",
        "log.retention.check.interval.ms": "20",
    }
    with sync.embedded(store.data, settings=settings) as client:
        client.create_topic("orders", config={"segment.bytes": str(1 << 20)})
        with client.create_producer("orders") as producer:
            for number in range(SENT):
                producer.send(b"%d:" % number + bytes(300_000))
        client.offload("orders")
        for _ in rounds("primary copies are deleted"):
            (partition,) = client.topic_stats("orders").partitions
            if all(each.primary_deleted for each in partition.ledgers[:-1]):
                break
    command = ["ledger", "dump", "--data", store.data, "orders-0"]
    code, lines = check(*command, capsys=capsys)
    assert 1 == code
    assert any("left out:" in line and "are in tier object-store" in line for line in lines)
    code, lines = check(*command, "--tier", capsys=capsys)
    assert (0, SENT) == (code, len(lines))
    assert [f"offset={number} " in line for number, line in enumerate(lines)] == [True] * SENT
    output = tmp_path / "export"
    code, _ = check(*command, "--tier", "--format", "kafka", "--output", output, capsys=capsys)
    assert 0 == code
    shown = ["ledger", "show", "--data", store.data, "--json", "orders-0", "--tier"]
    code, lines = check(*shown, capsys=capsys)
    fields = json.loads("\n".join(lines))
    assert (0, 0, SENT) == (code, fields["log_start_offset"], fields["log_end_offset"])
    for each in store.tier.rglob("*-index"):
        each.unlink()
    code, lines = check(*command, "--tier", capsys=capsys)
    assert 1 == code
    assert any("are in tier object-store and cannot be read: reading" in line for line in lines)
