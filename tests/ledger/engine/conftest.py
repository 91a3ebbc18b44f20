"""Folders of engine tests: in memory if the machine has such a file system.

A simulated crash works there as well, and the hundreds of syncs of these tests cost nothing.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    if not os.access(SHARED_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="engine-test-", dir=SHARED_MEMORY) as folder:
        yield Path(folder)
