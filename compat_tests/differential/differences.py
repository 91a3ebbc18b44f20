"""Differences: two records of answers side by side, and which of them are explained.

Rule: pure. A difference is one leaf of one answer. An explanation speaks of scripts and matches at
least one difference of each, or it is stale; a difference without one is a failure.
Must not know: servers, requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from compat_tests.differential.masks import Plain

MISSING = "missing"


class Asked(NamedTuple):
    """Which request of a script it was."""

    label: str
    api: str
    version: int


@dataclass(frozen=True, slots=True)
class Difference:
    """One leaf that is not the same; `path` says where in the answer, values as Python writes."""

    asked: Asked
    path: str
    ours: str
    theirs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why answers differ, and which: texts are patterns of the shell.

    Attributes:
        scripts: their names; each of them must show the difference.
        versions: first and last version of the API.
    """

    scripts: tuple[str, ...]
    label: str = "*"
    api: str = "*"
    versions: tuple[int, int] = (0, 99)
    path: str = "*"
    ours: str = "*"
    theirs: str = "*"
    reason: str

    def covers(self, one: Difference) -> bool:
        """Whether a difference is the one that is meant."""
        low, high = self.versions
        return (
            low <= one.asked.version <= high
            and fnmatchcase(one.asked.label, self.label)
            and fnmatchcase(one.asked.api, self.api)
            and fnmatchcase(one.path, self.path)
            and fnmatchcase(one.ours, self.ours)
            and fnmatchcase(one.theirs, self.theirs)
        )


def compare(asked: Asked, ours: Plain, theirs: Plain) -> list[Difference]:
    """Find the leaves in which two answers differ; sets of words, where ours lacks some."""
    return [Difference(asked, *leaf) for leaf in _leaves("", ours, theirs)]


def _leaves(path: str, ours: Any, theirs: Any) -> Iterator[tuple[str, str, str]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in ours | theirs:
            inner = f"{path}/{name}" if path else str(name)
            yield from _leaves(inner, ours.get(name, MISSING), theirs.get(name, MISSING))
    elif isinstance(ours, list) and isinstance(theirs, list):
        for index in range(max(len(ours), len(theirs))):
            left = ours[index] if index < len(ours) else MISSING
            right = theirs[index] if index < len(theirs) else MISSING
            yield from _leaves(f"{path}/{index}", left, right)
    elif isinstance(ours, frozenset) and isinstance(theirs, frozenset):
        if theirs - ours:
            yield path, "missing", f"key words {sorted(theirs - ours)}"
    elif ours != theirs:
        yield path, str(ours), str(theirs)


def unexplained(
    found: Iterable[Difference], explanations: Sequence[Explanation]
) -> tuple[list[Difference], list[Explanation]]:
    """Give the differences that nothing explains, and the explanations that explain nothing."""
    found = list(found)
    open_ones = [one for one in found if not any(each.covers(one) for each in explanations)]
    stale = [each for each in explanations if not any(each.covers(one) for one in found)]
    return open_ones, stale


def summary(found: Iterable[Difference]) -> str:
    """Return differences as text, those of several versions on one line."""
    lines: dict[tuple[str, ...], list[int]] = {}
    for one in found:
        label, api, version = one.asked
        lines.setdefault((label, api, one.path, one.ours, one.theirs), []).append(version)
    return "\n".join(
        f"{label}: {api} v{','.join(map(str, sorted(set(versions))))} {path}: "
        f"kledger {ours}, Kafka {theirs}"
        for (label, api, path, ours, theirs), versions in lines.items()
    )
