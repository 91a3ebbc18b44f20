"""`make demo-cluster` with a part of the flights."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cluster_demo.__main__ import main
from tests.tidy.sources import ROOT

DEMONSTRATION_S = 900
FLIGHTS = 12_000


def test_flights_that_are_too_few_for_a_stream_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cluster_demo", "--flights", "5"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "--flights: expected at least 6, got 5" in capsys.readouterr().err


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
        r"server 2 was killed after 2 micro-batches; others serve its nodes \d, \d ", words
    )
    assert re.search(r"server 2 serves the nodes \d, \d", words)
    assert f"{FLIGHTS:,} records in" in words
    assert 3 == words.count("kledger cluster status")
    assert re.search(r"primary 0, tier [1-9]", words)
    assert (tmp_path / "report.html").stat().st_size > 0
