"""What mutmut says about a small tree whose good and missing tests are known."""

from pathlib import Path

import pytest

from tests.mutation.measure import Measured, MeasurementFailed, draw, listed, measure, parse_results

PART = """\
def larger(one: int, other: int) -> int:
    return one if one > other else other


def nobody_calls() -> int:
    return 1
"""
GOOD = """\
from package.part.numbers import larger


def test_larger() -> None:
    assert (2, 2) == (larger(1, 2), larger(2, 1))
"""
WRONG = GOOD.replace("(2, 2)", "(2, 3)")


def small_tree(root: Path, test: str) -> Path:
    """Build a tree whose package contains a folder through a link."""
    (root / "part").mkdir()
    (root / "part" / "numbers.py").write_text(PART, "utf-8")
    (root / "package").mkdir()
    (root / "package" / "part").symlink_to("../part")
    (root / "tests").mkdir()
    (root / "tests" / "test_numbers.py").write_text(test, "utf-8")
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\n", "utf-8")
    return root


def contents(root: Path) -> dict[str, str]:
    return {str(path): path.read_text("utf-8") for path in root.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_mutants_of_a_linked_module_are_caught_missed_and_not_reached(tmp_path: Path) -> None:
    root = small_tree(tmp_path, GOOD)
    before = contents(root)
    measured = measure(root, "package/part/numbers.py", ["tests"], shows_changes=True)
    # `>=` for `>` is an equivalent mutant: of two equal numbers either is right.
    assert (1, 1) == (measured.count("survived"), measured.count("no tests"))
    assert len(measured.statuses) == len(measured.caught) + 2
    assert ["one >= other" in change for change in measured.changes.values()].count(True) == 1
    assert before == contents(root)


@pytest.mark.slow
def test_tests_that_fail_without_a_mistake_measure_nothing(tmp_path: Path) -> None:
    with pytest.raises(MeasurementFailed, match="mutmut"):
        measure(small_tree(tmp_path, WRONG), "package/part/numbers.py", ["tests"])


def test_a_timeout_counts_as_caught() -> None:
    statuses = parse_results(
        "    a.b.x_f__mutmut_1: killed\n    a.b.x_f__mutmut_2: timeout\n"
        "    a.b.x_f__mutmut_3: survived\n    a.b.x_g__mutmut_1: no tests\n    done\n"
    )
    measured = Measured(module="a/b.py", statuses=statuses, changes={})
    assert {"a.b.x_f__mutmut_1", "a.b.x_f__mutmut_2"} == measured.caught
    assert 2 == measured.count("survived", "no tests")


def test_settings_of_several_values_stand_in_lines_of_their_own() -> None:
    assert ["also_copy =", "    a", "    b"] == listed("also_copy", ["a", "b"])


def test_a_draw_is_repeatable_and_fills_the_limit() -> None:
    statuses = {"f1": "killed"} | {f"f{number}": "not checked" for number in range(2, 10)}
    drawn = draw(statuses, 5)
    assert (4, 4) == (len(drawn), len(set(drawn)))
    assert drawn == draw(statuses, 5)
    assert "f1" not in draw(statuses, 1000)
    assert 8 == len(draw(statuses, 9))
    assert [] == draw(statuses, 1)
