"""The compatibility page: written, read back, and changed by a part of the tests."""

from compat_tests.compatibility_report import WORKS, Row, failure_result, merge, parse, render


def row(client: str, feature: str, result: str = WORKS, version: str = "1.0") -> Row:
    return Row(client=client, version=version, feature=feature, result=result)


def test_page_read_back_gives_the_rows() -> None:
    rows = [row("kcat", "consume"), row("spark", "read | write", "fails: a | b")]
    assert rows == parse(render(rows))


def test_page_says_how_many_work() -> None:
    assert "1 of 2 work." in render([row("a", "x"), row("a", "y", "fails: no")])


def test_partial_run_replaces_its_rows_and_keeps_the_others() -> None:
    old = [row("kcat", "consume", "fails: no"), row("spark", "read")]
    new = [row("kcat", "consume", version="2.0")]
    assert merge(old, new, is_complete=False) == [
        row("kcat", "consume", version="2.0"),
        row("spark", "read"),
    ]


def test_complete_run_forgets_rows_that_no_test_makes_any_more() -> None:
    assert merge([row("gone", "x")], [row("kcat", "y")], is_complete=True) == [row("kcat", "y")]


def test_parse_passes_over_everything_else() -> None:
    assert parse("# Title\n\ntext | with | bars\n| one | two |\n| --- | --- | --- | --- |\n") == []


def test_failure_is_shortened_to_its_first_line() -> None:
    assert failure_result("\n  first line  \nsecond") == "fails: first line"
    assert failure_result("") == "fails: no message"
    assert len(failure_result("x" * 1000)) == len("fails: ") + 160
