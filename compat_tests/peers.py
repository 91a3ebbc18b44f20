"""Peers: the programs of other people that the server is tried with, and where they are.

Rule: a peer that is not there is an error of set-up (PeerMissing), never a skipped test. Of several
runs on one checkout one fetches or builds, and the others wait for it.
`python -m compat_tests.peers` fetches what is missing, through the package managers themselves.
Must not know: any package of the server.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS_FOLDER = ROOT / ".peers"
KAFKA_JARS = PEERS_FOLDER / "kafka"
JAVA_FOLDER = Path(__file__).resolve().parent / "java"
POM = JAVA_FOLDER / "pom.xml"
LOG_CONFIG = JAVA_FOLDER / "log4j2.properties"

KAFKA_VERSION = "4.3.0"
SPARK_VERSION = "4.0.0"
SPARK_CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}"
PYTHON_PEERS = ("aiokafka", "kafka-python", "confluent-kafka")
# The codecs of kafka-python are libraries of their own; Kafka's other clients carry theirs.
PYTHON_LIBRARIES = ("lz4", "python-snappy", "zstandard", "pyspark")
DEBIAN_PACKAGES = {"kcat": "kcat", "java": "default-jre-headless", "mvn": "maven"}


class PeerMissing(RuntimeError):
    """A peer is not installed; the message says what to run."""


def program(name: str) -> str:
    """Give the full path of a program on the search path.

    Raises:
        PeerMissing: it is not there.
    """
    found = shutil.which(name)
    if found is None:
        raise PeerMissing(f"{name} is not installed; run: python -m compat_tests.peers")
    return found


def kafka_class_path() -> str:
    """Give the class path with Apache Kafka's server, tools and clients.

    Raises:
        PeerMissing: the jars were not fetched, or are those of another version.
    """
    if not _jar().exists():
        raise PeerMissing(
            f"Apache Kafka {KAFKA_VERSION} is not in {KAFKA_JARS.name}/; "
            "run: python -m compat_tests.peers"
        )
    return str(KAFKA_JARS / "*")


def _jar() -> Path:
    """Give the file that is there when all of them are, in the version that is wanted."""
    return KAFKA_JARS / f"kafka_2.13-{KAFKA_VERSION}.jar"


def java_command(main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    """Build the command that runs one main class of the Apache Kafka jars."""
    return [
        program("java"),
        *options,
        f"-Dlog4j2.configurationFile={LOG_CONFIG}",
        "-cp",
        kafka_class_path(),
        main_class,
        *arguments,
    ]


@cache
def peer_version(peer: str) -> str:
    """Give the version of a peer as its own package manager or program states it."""
    if peer in PYTHON_PEERS:
        return importlib.metadata.version(peer)
    if peer == "kcat":
        printed = subprocess.run(
            [program("kcat"), "-V"], capture_output=True, text=True, check=True
        )
        return parse_kcat_version(printed.stdout)
    if peer == "spark":
        return importlib.metadata.version("pyspark")
    return KAFKA_VERSION


def parse_kcat_version(printed: str) -> str:
    """Read kcat's own version and that of the library inside it from what `kcat -V` prints."""
    own = re.search(r"Version (\S+)", printed)
    library = re.search(r"librdkafka (\S+)", printed)
    if own is None or library is None:
        raise PeerMissing(f"kcat does not say its version: {printed[:80]!r}")
    return f"{own[1]} (librdkafka {library[1]})"


def require_all() -> None:
    """Check that every peer is there.

    Raises:
        PeerMissing: one is not.
    """
    for name in ("java", "kcat"):
        program(name)
    kafka_class_path()
    for name in (*PYTHON_PEERS, *PYTHON_LIBRARIES):
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError as error:
            raise PeerMissing(f"{name} is not installed; run: make setup") from error


@contextmanager
def alone() -> Iterator[None]:
    """Be the only process that changes what is below .peers/."""
    PEERS_FOLDER.mkdir(exist_ok=True)
    (PEERS_FOLDER / ".gitignore").write_text("*\n")
    with (PEERS_FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetch() -> None:
    """Fetch the peers that are missing: programs with apt-get, jars with Maven.

    Changes nothing when all are there.

    Raises:
        PeerMissing: one could not be had.
    """
    with alone():
        _fetch_missing()
    require_all()


def _fetch_missing() -> None:
    jars_missing = not _jar().exists()
    needed = ["kcat", "java", *(["mvn"] if jars_missing else [])]
    missing = [name for name in needed if shutil.which(name) is None]
    try:
        if missing:
            _fetch_programs([DEBIAN_PACKAGES[name] for name in missing])
        if jars_missing:
            _fetch_jars()
    except subprocess.CalledProcessError as error:
        raise PeerMissing(f"could not be fetched: {error}") from error


def _fetch_jars() -> None:
    """Resolve the list in pom.xml into a fresh folder, then move it into place at once."""
    arriving = PEERS_FOLDER / "kafka.arriving"
    shutil.rmtree(arriving, ignore_errors=True)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    subprocess.run(
        [program("mvn"), "-q", "-B", "-f", str(POM), *goal, f"-DoutputDirectory={arriving}"],
        check=True,
    )
    shutil.rmtree(KAFKA_JARS, ignore_errors=True)
    arriving.rename(KAFKA_JARS)


def _fetch_programs(names: list[str]) -> None:
    """Install programs from Debian; needs the rights to do so."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise PeerMissing(f"not installed: {', '.join(names)}; install them with your system")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *names]
    subprocess.run(install, check=True, env=environment, stdout=subprocess.DEVNULL)


def main() -> int:
    """Fetch, or say in one line what is in the way."""
    try:
        fetch()
    except PeerMissing as error:
        sys.stderr.write(f"peers: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
