"""The image holds every folder that is shipped, and its recipe is free of what a linter knows."""

import re
import subprocess
import sys
from pathlib import Path

from tests.tidy.sources import ROOT

DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
IGNORED = (ROOT / ".dockerignore").read_text().splitlines()


def shipped_folders() -> set[str]:
    """Return the package and what its links lead to."""
    links = {each.resolve().name for each in (ROOT / "kledger").iterdir() if each.is_symlink()}
    return {"kledger"} | links


def stage(name: str) -> str:
    return next(part for part in DOCKERFILE.split("\nFROM ") if f"AS {name}\n" in part)


def test_linter_has_nothing_to_say() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run(
        [hadolint, ROOT / "docker" / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (0, "") == (done.returncode, done.stdout)


def test_image_is_built_from_every_folder_that_is_shipped() -> None:
    copied = set(re.findall(r"^COPY (\w+) \./\w+$", stage("build"), re.MULTILINE))
    assert shipped_folders() == copied


def test_build_sees_every_copied_path() -> None:
    sources = {
        word
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
        for word in line.split()
    }
    seen = {line[1:] for line in IGNORED if line.startswith("!")}
    assert set() == {name for name in sources if name not in seen and "lock" not in name}
    assert "requirements*.lock" in seen
    assert all((ROOT / name).exists() for name in sources)


def test_server_is_unprivileged_and_stops_by_its_own_signal() -> None:
    server = stage("server")
    assert "USER 10001:10001" in server
    assert "STOPSIGNAL SIGTERM" in server
    assert "kledger.healthcheck" in server
