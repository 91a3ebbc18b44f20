"""`make demo-cluster` with a part of the flights, and its brokers without Spark."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cluster_demo.__main__ import main
from cluster_demo.brokers import ClusterBrokers, OwnerChange
from kledger.healthcheck import check
from pipelines.tier import read_values
from tests.tidy.sources import ROOT

DEMONSTRATION_S = 900
FLIGHTS = 12_000
WAIT_S = 60


def test_change_of_the_owner_is_said_in_words() -> None:
    assert "broker 3 owns the cluster 6.8 s later" == str(OwnerChange(1, 3, 6.849))


def test_flights_that_are_too_few_for_a_stream_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cluster_demo", "--flights", "5"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "--flights: expected at least 6, got 5" in capsys.readouterr().err


@pytest.mark.slow
def test_brokers_take_over_from_each_other_at_one_address(
    postgres_url: str, tmp_path: Path
) -> None:
    store = (tmp_path / "objects").as_uri()
    subprocess.run(
        [sys.executable, "-P", "-m", "kledger", "cluster", "init", postgres_url, "--store", store],
        check=True,
        capture_output=True,
    )
    settings = {"cluster.sql.asynchronous": "true"}
    with ClusterBrokers(postgres_url, store, settings) as brokers:
        assert 1 == brokers.owner
        producer = Producer({"bootstrap.servers": brokers.bootstrap})
        producer.produce("orders", b"before")
        assert 0 == producer.flush(WAIT_S)

        change = brokers.kill_owner()
        assert (1, brokers.owner) == (change.before, change.after)
        producer.produce("orders", b"between")
        assert 0 == producer.flush(WAIT_S)

        brokers.restart()
        assert {1, change.after, brokers.owner} == {1, 2, 3}
        assert [b"before", b"between"] == read_values(brokers.bootstrap, "orders")
        address = brokers.bootstrap
    assert check(address) is not None, "all ended"


@pytest.mark.slow
def test_demonstration_of_a_cluster_agrees_with_pandas(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cluster_demo", "--flights", str(FLIGHTS), "--out", tmp_path],
        capture_output=True,
        text=True,
        timeout=DEMONSTRATION_S,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    words = " ".join(done.stdout.split())
    assert re.search(
        r"broker 1, the owner, was killed after 2 micro-batches; broker [23] owns", words
    )
    assert f"{FLIGHTS:,} records in" in words
    assert 3 == words.count("kledger cluster status")
    assert re.search(r"primary 0, tier [1-9]", words)
    assert (tmp_path / "report.html").stat().st_size > 0
