"""The command: its flags, its exit codes, and what SIGTERM does to a stream."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError

from compat_tests.deadlines import PROGRAM_S, wait_until
from compat_tests.servers import KledgerServer
from pipelines import command
from pipelines.command import main
from tests.pipelines.records import create_topic, json_record, parquet_rows, send

ARCHIVE = ["archive", "--servers", "127.0.0.1:1", "--topic", "t", "--to", "d", "--checkpoint", "c"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*ARCHIVE, "--every", "soon"], "archive: option 'every': expected seconds above 0"),
        ([*ARCHIVE, "--every", "5", "--available-now"], "exclude each other"),
        ([*ARCHIVE, "--source", "pulsar"], "expected kafka or kledger, got 'pulsar'"),
    ],
)
def test_wrong_calls_end_with_two_before_spark_starts(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["archives"], ["archive"], [*ARCHIVE, "--to-day"]])
def test_unknown_flags_and_names_end_with_two(words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2


def test_help_lists_the_pipelines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    for name in ("archive", "replay", "windows", "deduplicate", "snapshot"):
        assert f"\n    {name}" in printed


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "refused"), Py4JNetworkError()])
def test_end_of_the_virtual_machine_is_named(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr(command, "_run", ends)
    assert main(ARCHIVE) == 1
    assert "archive: failed: Spark's virtual machine has ended" in capsys.readouterr().err


@pytest.mark.slow
def test_sigterm_ends_a_stream_with_its_summary(server: KledgerServer, tmp_path: Path) -> None:
    create_topic(server.bootstrap, "endless")
    send(server.bootstrap, "endless", [json_record(n, partitions=1) for n in range(100)])
    words = ["--servers", server.bootstrap, "--topic", "endless", "--every", "0.5", "--json"]
    words += ["--to", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "checkpoint")]
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines", "archive", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(
            lambda: any((tmp_path / "checkpoint").glob("commits/0")) or process.poll() is not None,
            "a micro-batch",
            within_s=PROGRAM_S,
        )
        process.send_signal(signal.SIGTERM)
        printed, log = process.communicate(timeout=PROGRAM_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, log
    summary = json.loads(printed.splitlines()[-1])
    assert summary.pop("duration_s") > 0
    assert {
        "pipeline": "archive", "rows_in": 100, "rows_out": 100, "bad_records": 0,
        "offsets": {"endless": {"0": 100}},
    } == summary  # fmt: skip
    assert 100 == len(parquet_rows(tmp_path / "out"))
    assert "archive: batch 0, 100 rows" in log


@pytest.mark.slow
def test_failure_ends_with_one_and_says_why(server: KledgerServer, tmp_path: Path) -> None:
    words = ["--servers", server.bootstrap, "--topic", "no-such-topic", "--to", str(tmp_path / "t")]
    done = subprocess.run(
        [sys.executable, "-m", "pipelines", "snapshot", *words],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last == "snapshot: failed: topic no-such-topic: UNKNOWN_TOPIC_OR_PARTITION"
