"""A missing peer is an error that says what to do."""

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
