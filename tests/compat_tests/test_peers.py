"""A missing peer is an error that says what to do; one process at a time fetches it."""

import fcntl
from pathlib import Path

import pytest

from compat_tests import peers

KCAT = "kcat - x\nVersion 1.7.1 (JSON, librdkafka 2.0.2 builtin.features=gzip,snappy)\n"


def test_kcat_version_names_the_library_inside() -> None:
    assert peers.parse_kcat_version(KCAT) == "1.7.1 (librdkafka 2.0.2)"


def test_kcat_that_says_nothing_is_missing() -> None:
    with pytest.raises(peers.PeerMissing):
        peers.parse_kcat_version("something else")


def test_missing_program_says_how_to_get_it() -> None:
    with pytest.raises(peers.PeerMissing, match=r"python -m compat_tests\.peers"):
        peers.program("no-such-program-anywhere")


def test_versions_are_pinned_where_the_jars_are_listed() -> None:
    assert f"<kafka.version>{peers.KAFKA_VERSION}<" in peers.POM.read_text()


def test_one_process_at_a_time_changes_the_peers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "PEERS_FOLDER", tmp_path / ".peers")

    def try_to_lock() -> None:
        with (peers.PEERS_FOLDER / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    with peers.alone(), pytest.raises(BlockingIOError):
        try_to_lock()
    try_to_lock()
