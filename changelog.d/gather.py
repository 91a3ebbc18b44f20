"""Move the fragments of this folder into CHANGELOG.md, under one version.

Rule: a fragment leaves the folder only after the changelog with its text was written.
Must not know: git, release dates; a version is a heading and nothing more.
"""

import re
import sys
from pathlib import Path

KINDS = ("added", "changed", "fixed", "removed", "security")


def fragments(folder: Path) -> dict[str, list[Path]]:
    """Return the fragments by kind, in the order of KINDS and of their names.

    Raises:
        ValueError: a file's name is not of the form the README asks for.
    """
    found: dict[str, list[Path]] = {kind: [] for kind in KINDS}
    for path in sorted(folder.glob("*.md")):
        if path.name == "README.md":
            continue
        match = re.fullmatch(r"[a-z0-9-]+\.([a-z]+)\.md", path.name)
        if match is None or match[1] not in KINDS:
            raise ValueError(f"{path.name}: expected <short-name>.<{'|'.join(KINDS)}>.md")
        found[match[1]].append(path)
    return found


def section(version: str, found: dict[str, list[Path]]) -> str:
    """Write the version's section."""
    lines = [f"## {version}"]
    for kind, paths in found.items():
        if paths:
            lines += ["", f"### {kind.capitalize()}", ""]
            lines += ["- " + " ".join(path.read_text("utf-8").split()) for path in paths]
    return "\n".join(lines) + "\n"


def insert(changelog: str, text: str) -> str:
    """Put the section in front of the newest one."""
    head, mark, older = changelog.partition("\n## ")
    return head.rstrip("\n") + "\n\n" + text + mark + older


def main(folder: Path, version: str) -> int:
    """Gather; return the exit code."""
    if re.fullmatch(r"\d+\.\d+\.\d+", version) is None:
        sys.stderr.write(f"expected a version like 0.2.0, got {version!r}\n")
        return 2
    found = fragments(folder)
    changelog = folder.parent / "CHANGELOG.md"
    changelog.write_text(insert(changelog.read_text("utf-8"), section(version, found)), "utf-8")
    for path in (path for paths in found.values() for path in paths):
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent, sys.argv[1] if len(sys.argv) > 1 else ""))
