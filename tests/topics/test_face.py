"""The face of the package: every name is there, and costs nothing before its first use."""

import subprocess
import sys

import pytest

import kledger.topics


@pytest.mark.parametrize("name", kledger.topics.__all__)
def test_every_name_has_a_home(name: str) -> None:
    assert getattr(kledger.topics, name) is not None


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Unheard'"):
        kledger.topics.Unheard  # type: ignore[attr-defined]  # noqa: B018


def test_loading_the_package_loads_no_partition() -> None:
    """Compaction runs modules of it in a process that has no event loop and no store."""
    program = "import sys, kledger.topics; print([*sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    ).stdout
    assert "'kledger.topics'" in loaded
    for each in ("asyncio", "rocksdict", "kledger.ledger", "kledger.topics.partition"):
        assert f"'{each}'" not in loaded
