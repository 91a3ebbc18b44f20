"""Results keep every sample; figures are medians, ratios are of one run."""

from benchmarks.results import Results, Sample, from_json, merged


def sample(case: str, subject: str, number: int, **figures: float) -> Sample:
    return Sample(case=case, subject=subject, round=number, figures=figures)


def three_rounds() -> Results:
    return Results(
        conditions={"CPU": "one"},
        samples=[
            *(sample("c", "ours", n, ms=value) for n, value in enumerate((9.0, 2.0, 3.0), 1)),
            *(sample("c", "theirs", n, ms=value) for n, value in enumerate((6.0, 6.0, 1.0), 1)),
        ],
    )


def test_figure_is_the_median_of_the_rounds() -> None:
    assert three_rounds().median("c", "ours", "ms") == 3.0
    assert three_rounds().median("c", "ours", "other") is None


def test_ratio_is_one_of_medians() -> None:
    assert three_rounds().ratio("c", "ms", "ours", "theirs") == 0.5
    assert three_rounds().ratio("c", "ms", "ours", "nobody") is None


def test_json_gives_back_the_same() -> None:
    results = three_rounds()
    results.profiles = {"c, ours": [("a.py f", 0.5)]}
    results.failures = {"d": "why"}
    assert from_json(results.to_json()) == results


def test_newer_run_replaces_its_cases_whole() -> None:
    older = three_rounds()
    older.samples.append(sample("other", "ours", 1, ms=1.0))
    newer = Results(samples=[sample("c", "ours", 1, ms=7.0)], failures={"x": "why"})
    both = merged(older, newer)
    assert both.rounds("c", "ours", "ms") == [7.0]
    assert both.rounds("c", "theirs", "ms") == []
    assert both.rounds("other", "ours", "ms") == [1.0]
    assert both.failures == {"x": "why"}
    assert both.conditions == {"CPU": "one"}


def test_cases_keep_the_revision_that_they_were_measured_on() -> None:
    older, newer = three_rounds(), Results(conditions={"kledger": "new"})
    older.conditions = {"kledger": "old"}
    older.samples.append(sample("other", "ours", 1, ms=1.0))
    newer.samples.append(sample("c", "ours", 1, ms=7.0))
    both = merged(older, newer)
    assert ("new", "new", "old") == (
        both.revision,
        both.revision_of("c"),
        both.revision_of("other"),
    )
    newest = Results(conditions={"kledger": "newest"})
    again = merged(from_json(both.to_json()), newest)
    assert ("new", "old") == (again.revision_of("c"), again.revision_of("other"))
