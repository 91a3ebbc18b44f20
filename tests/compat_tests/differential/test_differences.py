"""What counts as a difference, and when it is explained."""

import pytest

from compat_tests.differential.differences import (
    MISSING,
    Asked,
    Difference,
    Explanation,
    compare,
    summary,
    unexplained,
)
from compat_tests.differential.masks import Plain

ASKED = Asked("label", "Fetch", 12)


def found(path: str, ours: str = "1", theirs: str = "2", version: int = 12) -> Difference:
    return Difference(ASKED._replace(version=version), path, ours, theirs)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ({"a": 1, "b": [1, 2]}, {"a": 1, "b": [1, 2]}, []),
        ({"a": 1}, {"a": 2}, [found("a")]),
        ({"t": {"x": {"a": 1}}}, {"t": {"x": {"a": 2}}}, [found("t/x/a")]),
        ({"a": 1}, {}, [found("a", "1", MISSING)]),
        ({}, {"a": 2}, [found("a", MISSING, "2")]),
        ({"a": [1, 2]}, {"a": [1]}, [found("a/1", "2", MISSING)]),
        ({"a": None}, {"a": []}, [found("a", "None", "[]")]),
        ("closed", {"a": 2}, [found("", "closed", "{'a': 2}")]),
    ],
)
def test_leaves_that_differ_are_found_where_they_are(
    ours: Plain, theirs: Plain, expected: list[Difference]
) -> None:
    assert expected == compare(ASKED, ours, theirs)


@pytest.mark.parametrize(
    ("meant", "is_covered"),
    [
        ({}, True),
        ({"label": "la*", "api": "Fetch", "path": "*/offset", "ours": "1", "theirs": "2"}, True),
        ({"label": "other"}, False),
        ({"api": "Produce"}, False),
        ({"versions": (13, 18)}, False),
        ({"versions": (4, 12)}, True),
        ({"path": "*/error_code"}, False),
        ({"ours": "2"}, False),
        ({"theirs": "1"}, False),
    ],
)
def test_an_explanation_covers_what_it_names(meant: dict[str, Plain], is_covered: bool) -> None:
    one = Explanation(scripts=("s",), reason="because", **meant)
    assert is_covered == one.covers(found("topics/t/offset"))


def test_unexplained_differences_and_unused_explanations_are_both_reported() -> None:
    known, unknown = found("a"), found("b")
    good = Explanation(scripts=("s",), path="a", reason="because")
    stale = Explanation(scripts=("s",), path="c", reason="once")
    assert ([unknown], [stale]) == unexplained([known, unknown], [good, stale])
    assert ([], []) == unexplained([known], [good])


def test_the_versions_of_one_difference_share_a_line() -> None:
    lines = summary([found("a", version=12), found("b"), found("a", version=4)]).splitlines()
    assert [
        "label: Fetch v4,12 a: kledger 1, Kafka 2",
        "label: Fetch v12 b: kledger 1, Kafka 2",
    ] == lines


def test_key_words_of_the_other_server_have_to_be_there_and_more_may_be() -> None:
    asked = Asked("a", "Api", 1)
    more, less = frozenset({"does not exist", "not found"}), frozenset({"not found"})
    assert [] == compare(asked, {"error_message": more}, {"error_message": less})
    (found,) = compare(asked, {"error_message": less}, {"error_message": more})
    assert ("error_message", "missing", "key words ['does not exist']") == (
        found.path,
        found.ours,
        found.theirs,
    )
