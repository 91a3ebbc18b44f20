"""The snippets of the README and of pages in docs, run against a server at another address.

Rule: only kcat gets a longer timeout, because its own is 5 s.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.deadlines import PROGRAM_S, WAIT_S

pytestmark = pytest.mark.data_folder("the servers are those of the pytest plugin")
ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/CLIENTS.md", "docs/TESTING.md")
ADDRESS = "127.0.0.1:9092"
NATIVE_URL = "kledger://127.0.0.1:9093"


def snippets() -> dict[str, tuple[str, str]]:
    """Return name -> (language, text) of every snippet that has a client's name as its title."""
    text = "".join((ROOT / page).read_text() for page in PAGES)
    found = re.findall(r"\*\*([\w-]+)\*\*[^\n]*\n\n```(python|sh)\n(.*?)```", text, re.DOTALL)
    return {name: (language, text) for name, language, text in found}


def run(language: str, text: str, address: str) -> str:
    """Run one snippet in a separate process and return what it printed."""
    text = text.replace(ADDRESS, address).replace("kcat -b", f"kcat -m {WAIT_S} -b")
    command = [sys.executable, "-c", text] if language == "python" else ["bash", "-ec", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("aiokafka", "one from aiokafka"),
        ("kafka-python", "one from kafka-python"),
        ("confluent-kafka", "one from librdkafka"),
        ("kcat", "one from kcat"),
        pytest.param("Spark", "one from", marks=pytest.mark.slow),
    ],
)
def test_readme_snippet_prints_what_it_wrote(kledger_server: str, name: str, expected: str) -> None:
    language, text = snippets()[name]
    if name == "Spark":
        run(*snippets()["aiokafka"], kledger_server)

    assert expected in run(language, text, kledger_server)


def connected(text: str, url: str | None, module: str = "kledger") -> str:
    """Return a snippet that connects to this server; None: that embeds one."""
    connecting = f'{module}.connect("{NATIVE_URL}")'
    assert connecting in text
    found = f"{module}.embedded(None)" if url is None else f'{module}.connect("{url}")'
    return text.replace(connecting, found)


@pytest.mark.parametrize("is_embedded", [True, False])
def test_plain_snippet_prints_what_it_wrote(kledger_native_server: str, is_embedded: bool) -> None:
    language, text = snippets()["native-sync"]
    text = connected(text, None if is_embedded else kledger_native_server, "kledger.sync")
    assert "0 b'one from a script'" in run(language, text, ADDRESS)


@pytest.mark.parametrize("is_embedded", [True, False])
def test_native_snippet_prints_what_it_wrote(kledger_native_server: str, is_embedded: bool) -> None:
    language, text = snippets()["native"]
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) <= 11, "the example is to be short"
    text = connected(text, None if is_embedded else kledger_native_server)
    assert "0 b'one from kledger' {'source': 'readme'}" in run(language, text, ADDRESS)


@pytest.mark.parametrize("is_embedded", [True, False])
def test_table_snippet_prints_what_it_wrote(kledger_native_server: str, is_embedded: bool) -> None:
    language, text = snippets()["native-table"]
    text = connected(text, None if is_embedded else kledger_native_server)
    expected = "b'order-17' becomes b'paid'\nb'paid' 1\n"
    assert expected == run(language, text, ADDRESS)


@pytest.mark.parametrize("is_embedded", [True, False])
def test_workers_of_the_readme_share_a_queue(kledger_native_server: str, is_embedded: bool) -> None:
    language, text = snippets()["named-topic"]
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) <= 30, "the example is to be short"
    text = connected(text, None if is_embedded else kledger_native_server)
    done = [line.partition(" did ")[2] for line in run(language, text, ADDRESS).splitlines()]
    assert {f"job {number}" for number in range(8)} == set(done)


def test_tests_of_the_readme_pass(tmp_path: Path) -> None:
    """A project that has pytest-asyncio and kledger runs them as they stand."""
    language, text = snippets()["pytest"]
    assert language == "python"
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    (tmp_path / "test_orders.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PROGRAM_S, check=False, cwd=tmp_path
    )
    assert f"{text.count('def test_')} passed" in done.stdout, done.stdout
