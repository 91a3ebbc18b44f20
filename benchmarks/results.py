"""Results: what was measured, and the figures that a reader compares.

Rule: pure; every sample is kept, a figure is the median of a case's rounds, a ratio is one of two
medians of the same run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The figures of one round of a case on a subject."""

    case: str
    subject: str
    round: int
    figures: dict[str, float]


@dataclass(slots=True, kw_only=True)
class Results:
    """Everything that a run produced, or several of them.

    Attributes:
        revisions: of kledger, by case; without an entry it is the one of the conditions.
    """

    conditions: dict[str, str] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    profiles: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)

    @property
    def revision(self) -> str:
        """The revision of kledger that the last run measured."""
        return self.conditions.get("kledger", "?")

    def revision_of(self, case: str) -> str:
        """Give the revision that a case was measured on."""
        return self.revisions.get(case, self.revision)

    def rounds(self, case: str, subject: str, figure: str) -> list[float]:
        """Give a figure as each round found it."""
        return [
            sample.figures[figure]
            for sample in self.samples
            if sample.case == case and sample.subject == subject and figure in sample.figures
        ]

    def median(self, case: str, subject: str, figure: str) -> float | None:
        """Give the median of a figure, None when it was not measured."""
        found = self.rounds(case, subject, figure)
        return median(found) if found else None

    def ratio(self, case: str, figure: str, subject: str, against: str) -> float | None:
        """Give the ratio of two medians, None when one is missing."""
        ours, theirs = self.median(case, subject, figure), self.median(case, against, figure)
        return None if ours is None or not theirs else ours / theirs

    def cases(self) -> list[str]:
        """Give the cases in the order they were run."""
        return list(dict.fromkeys(sample.case for sample in self.samples))

    def subjects(self, case: str) -> list[str]:
        """Give the subjects of a case in the order they were run."""
        return list(dict.fromkeys(s.subject for s in self.samples if s.case == case))

    def figures(self, case: str) -> list[str]:
        """Give the names of a case's figures."""
        named = (name for s in self.samples if s.case == case for name in s.figures)
        return list(dict.fromkeys(named))

    def to_json(self) -> str:
        """Write everything."""
        return json.dumps(asdict(self), indent=1)


def from_json(text: str) -> Results:
    """Read what to_json() wrote."""
    found: dict[str, Any] = json.loads(text)
    found["samples"] = [Sample(**sample) for sample in found["samples"]]
    found["profiles"] = {
        name: [(str(where), float(share)) for where, share in rows]
        for name, rows in found.get("profiles", {}).items()
    }
    return Results(**found)


def merged(older: Results, newer: Results) -> Results:
    """Put the cases of a newer run in place of those of an older one."""
    replaced = set(newer.cases()) | set(newer.failures)
    kept: Iterable[Sample] = (s for s in older.samples if s.case not in replaced)
    failures = {name: why for name, why in older.failures.items() if name not in replaced}
    return Results(
        conditions=newer.conditions or older.conditions,
        about=older.about | newer.about,
        samples=[*kept, *newer.samples],
        failures=failures | newer.failures,
        profiles=older.profiles | newer.profiles,
        revisions={case: run.revision_of(case) for run in (older, newer) for case in run.cases()},
    )
