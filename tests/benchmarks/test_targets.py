"""Targets name cases, figures and subjects that exist, and are judged on the right side."""

from benchmarks.cases import CASES, KAFKA, OS
from benchmarks.results import Results, Sample
from benchmarks.targets import TARGETS, Target, Verdict, judge


def test_every_target_is_measured_by_a_case() -> None:
    known = {case.name: case for case in CASES}
    for target in TARGETS:
        subjects = known[target.case].subjects
        assert target.subject in subjects, target
        assert target.against is None or target.against in subjects, target


def verdict(found: float | None, *, better: str, limit: float = 2.0) -> Verdict:
    target = Target(
        what="w", case="c", figure="f", subject=OS, against=KAFKA, limit=limit,
        better="lower" if better == "lower" else "higher",
    )  # fmt: skip
    return Verdict(target=target, found=found)


def test_lower_is_reached_at_the_limit_and_missed_above() -> None:
    assert verdict(2.0, better="lower").is_reached
    missed = verdict(3.0, better="lower")
    assert not missed.is_reached
    assert missed.missed_by == 0.5


def test_higher_is_missed_below() -> None:
    assert verdict(2.5, better="higher").is_reached
    assert verdict(1.0, better="higher").missed_by == 0.5


def test_unmeasured_target_is_neither_reached_nor_missed_by_anything() -> None:
    unmeasured = verdict(None, better="lower")
    assert not unmeasured.is_reached
    assert unmeasured.missed_by == 0.0


def test_judge_holds_ratio_and_plain_figures() -> None:
    samples = [
        Sample(case="produce-1k", subject=OS, round=1, figures={"cpu_ms_per_mb": 3.0}),
        Sample(case="produce-1k", subject=KAFKA, round=1, figures={"cpu_ms_per_mb": 6.0}),
        Sample(case="start", subject=OS, round=1, figures={"start_s": 0.25}),
    ]
    found = {
        (v.target.case, v.target.figure): v.found
        for v in judge(Results(samples=samples))
        if v.found is not None
    }
    assert found == {("produce-1k", "cpu_ms_per_mb"): 0.5, ("start", "start_s"): 0.25}
