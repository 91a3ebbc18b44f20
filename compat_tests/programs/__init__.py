"""Everyday programs in other languages: built by their own project files, run as processes.

Rule: a build happens in a copy below .peers/, anew only when a source changed; each project pins
what it is made of. A toolchain that is not there is an error of set-up (PeerMissing), never a
skipped test; only slow tests need one.
Must not know: any package of the server.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import MappingProxyType

from compat_tests import peers
from compat_tests.deadlines import WAIT_S
from compat_tests.servers.process import die_with_parent

SOURCES = Path(__file__).resolve().parent
BUILDS = peers.PEERS_FOLDER / "programs"

_MAVEN = "mvn -q -B compile dependency:copy-dependencies -DincludeScope=runtime"
_BUILD_COMMANDS = {
    "azurite": "npm ci --silent --no-audit --no-fund",
    "go": "go build -o built/ ./...",
    "java": f"{_MAVEN} -DoutputDirectory=target/libraries",
    "node": "npm ci --silent --no-audit --no-fund",
    "rclone": "go build -o built/ github.com/rclone/rclone",
    "registry": "mvn -q -B dependency:unpack",
    "rust": "cargo build --quiet --locked",
    "versitygw": "go build -o built/ github.com/versity/versitygw/cmd/versitygw",
}
# No toolchain is fetched in place of the one that is there.
_ENVIRONMENT = {"GOTOOLCHAIN": "local"}
# The client, the file that pins it, and how.
_PINS = {
    "franz-go": ("go/go.mod", r"twmb/franz-go v(\S+)"),
    "sarama": ("go/go.mod", r"IBM/sarama v(\S+)"),
    "segmentio-kafka-go": ("go/go.mod", r"segmentio/kafka-go v(\S+)"),
    "kafkajs": ("node/package.json", r'"kafkajs": "([^"]+)"'),
    "apicurio-registry": ("registry/pom.xml", r"<apicurio.version>([^<]+)"),
    "rdkafka-rust": ("rust/Cargo.toml", r'rdkafka = .*?"=([^"]+)"'),
}


def version(client: str) -> str | None:
    """Give the version that a project pins, None for a client that no project has."""
    if client not in _PINS:
        return None
    file, pattern = _PINS[client]
    found = re.search(pattern, (SOURCES / file).read_text())
    assert found is not None, f"{file} does not pin {client}"
    return found[1]


@cache
def built(language: str) -> Path:
    """Build a project, unless its copy is of the same sources, and give the folder.

    Raises:
        PeerMissing: the toolchain is not installed, or the build failed.
    """
    with peers.alone():
        return _build(language)


def _build(language: str) -> Path:
    source, target = SOURCES / language, BUILDS / language
    stamp, digest = target / ".stamp", _digest(source)
    if stamp.exists() and stamp.read_text() == digest:
        return target
    command = _BUILD_COMMANDS[language].split()
    if shutil.which(command[0]) is None:
        raise peers.PeerMissing(
            f"{command[0]} is not installed; the programs in compat_tests/programs/{language} "
            "are built with it, and nothing else needs it"
        )
    stamp.unlink(missing_ok=True)
    shutil.copytree(source, target, dirs_exist_ok=True)
    done = subprocess.run(
        command,
        cwd=target,
        env=os.environ | _ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise peers.PeerMissing(f"{language}: not built: {done.stdout}\n{done.stderr}")
    stamp.write_text(digest)
    return target


def _digest(folder: Path) -> str:
    """Return whether a file of a project changed."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return whole.hexdigest()


def client_command(client: str) -> list[str]:
    """Give the command of a client's program; it takes a task as arguments.

    Raises:
        PeerMissing: see built().
    """
    match client:
        case "kafkajs":
            return [peers.program("node"), str(built("node") / "kafkajs.js")]
        case "rdkafka-rust":
            return [str(built("rust") / "target" / "debug" / "rdkafka")]
        case _:
            name = {"franz-go": "franz", "segmentio-kafka-go": "segmentio"}.get(client, client)
            return [str(built("go") / "built" / name)]


def java_command(main_class: str, *arguments: str) -> list[str]:
    """Give the command of a main class of the Java project or its libraries.

    Raises:
        PeerMissing: see built().
    """
    target = built("java") / "target"
    return [
        peers.program("java"),
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"),
        f"-Dlog4j2.configurationFile={peers.LOG_CONFIG}",
        *("-cp", f"{target / 'classes'}:{target / 'libraries'}/*"),
        main_class,
        *arguments,
    ]


def registry_command() -> list[str]:
    """Give the command of the schema registry; environment variables configure it.

    Raises:
        PeerMissing: see built().
    """
    folder = built("registry") / "target" / "registry"
    return [
        peers.program("java"),
        *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"),
        *("-cp", f"{folder}/*:{folder / 'lib'}/*"),
        "io.quarkus.runner.GeneratedMain",
    ]


@contextmanager
def running(
    command: list[str], log: Path, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in the background, all that it says in a file; end it in the orderly way."""
    with log.open("ab") as said:
        process = subprocess.Popen(
            command,
            env=os.environ | dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, takes no lock
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(WAIT_S)
        finally:
            process.kill()
            process.wait()
