"""The recipes of docs/SPARK.md and README.md, run against a server at another address."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.deadlines import PROGRAM_S
from compat_tests.servers import KledgerServer
from tests.pipelines.records import create_topic, json_record, parquet_rows, send, topic_records

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ADDRESS = "127.0.0.1:9092"
COUNT = 700


def recipes(page: str) -> dict[str, tuple[str, str]]:
    """Return name -> (language, text) of the recipes of a page, which stand under their names."""
    found = re.findall(
        r"\*\*([\w-]+)\*\*[^\n]*\n\n```(python|sh)\n(.*?)```", (ROOT / page).read_text(), re.DOTALL
    )
    return {name: (language, text) for name, language, text in found}


def run(page: str, name: str, server: KledgerServer, folder: Path) -> str:
    """Run one recipe in a folder; return what it printed."""
    language, text = recipes(page)[name]
    assert ADDRESS in text
    text = text.replace(ADDRESS, server.bootstrap)
    command = [sys.executable, "-c", text] if language == "python" else ["bash", "-ec", text]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {
        "PYTHONPATH": str(ROOT), "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=2 * PROGRAM_S,
        check=False,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


@pytest.fixture(scope="module")
def orders(server: KledgerServer) -> str:
    """The topic of the recipes."""
    create_topic(server.bootstrap, "orders", partitions=2)
    records = [json_record(n, partitions=2) for n in range(COUNT)]
    send(server.bootstrap, "orders", [*records, *records[:10]])
    return "orders"


def test_archive_is_played_back(server: KledgerServer, orders: str, tmp_path: Path) -> None:
    create_topic(server.bootstrap, "orders-again", partitions=2)
    run("docs/SPARK.md", "archive-and-back", server, tmp_path)
    copied = topic_records(server.bootstrap, "orders-again")
    assert topic_records(server.bootstrap, orders) == copied


def test_pipeline_is_a_function(server: KledgerServer, orders: str, tmp_path: Path) -> None:
    assert f"{COUNT + 10} rows in" in run("docs/SPARK.md", "run", server, tmp_path)


def test_pipeline_is_submitted(server: KledgerServer, orders: str, tmp_path: Path) -> None:
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    printed = run("docs/SPARK.md", "spark-submit", server, tmp_path)
    assert f"{COUNT + 10} rows in, {COUNT + 10} rows out" in printed
    assert len(parquet_rows(tmp_path / "archive")) == COUNT + 10


def test_snapshot_is_a_table(server: KledgerServer, orders: str, tmp_path: Path) -> None:
    run("docs/SPARK.md", "snapshot", server, tmp_path)
    assert len(parquet_rows(tmp_path / "orders-table")) == 50


def test_windows_are_counted(server: KledgerServer, orders: str, tmp_path: Path) -> None:
    printed = run("docs/SPARK.md", "windows", server, tmp_path)
    rows = parquet_rows(tmp_path / "windows")
    assert f"{len(rows)} rows out, 0 bad records" in printed


def test_duplicates_are_dropped(server: KledgerServer, orders: str, tmp_path: Path) -> None:
    create_topic(server.bootstrap, "orders-once")
    run("docs/SPARK.md", "deduplicate", server, tmp_path)
    assert len(topic_records(server.bootstrap, "orders-once")) == 50


@pytest.mark.parametrize("page", ["docs/SPARK.md", "README.md"])
def test_format_reads_a_topic(
    server: KledgerServer, orders: str, tmp_path: Path, page: str
) -> None:
    name = "read" if page == "docs/SPARK.md" else "format-kledger"
    assert '{"user": "u0"' in run(page, name, server, tmp_path)


def test_format_writes_a_topic(server: KledgerServer, tmp_path: Path) -> None:
    create_topic(server.bootstrap, "squares", partitions=2)
    run("docs/SPARK.md", "write", server, tmp_path)
    written = {int(each.value or b"") for each in topic_records(server.bootstrap, "squares")}
    assert {n * n for n in range(100)} == written


def test_dashboard_has_the_sums_of_a_csv(server: KledgerServer, tmp_path: Path) -> None:
    create_topic(server.bootstrap, "rides", partitions=2)
    cities = ("Bern", "Turin", "Graz")
    lines = [f"2026-01-31 {n % 24:02}:{n % 60:02}:00,{cities[n % 3]},{n}.5" for n in range(240)]
    (tmp_path / "rides.csv").write_text("\n".join(["time,city,price", *lines]) + "\n")
    run("docs/SPARK.md", "dashboard", server, tmp_path)
    page = (tmp_path / "dashboard.html").read_text()
    assert "Rides by hour and city" in page
    assert all(f'"name":"{city}"' in page for city in cities)
    assert 240 == len(topic_records(server.bootstrap, "rides"))


def test_tutorial_has_at_most_twenty_lines() -> None:
    text = recipes("docs/SPARK.md")["dashboard"][1]
    assert 20 >= sum(1 for line in text.splitlines() if line.strip())


def test_archive_of_the_readme(server: KledgerServer, orders: str, tmp_path: Path) -> None:
    printed = run("README.md", "archive", server, tmp_path)
    assert f"{COUNT + 10} rows in, {COUNT + 10} rows out" in printed
    assert len(parquet_rows(tmp_path / "archive")) == COUNT + 10


@pytest.mark.parametrize("name", ["archive", "format-kledger"])
def test_recipes_of_the_readme_are_short(name: str) -> None:
    lines = [line for line in recipes("README.md")[name][1].splitlines() if line.strip()]
    assert len(lines) <= 10
