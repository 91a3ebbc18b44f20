"""The modules that are measured are there, with every test that the list names."""

from pathlib import Path

import pytest

from tests.mutation.modules import MODULES, chosen_tests, module_path

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", MODULES)
def test_listed_modules_and_tests_exist(module: str) -> None:
    module_path(ROOT, module)
    assert [] == [path for path in chosen_tests(ROOT, module) if not (ROOT / path).exists()]


@pytest.mark.parametrize("name", ["part/x.py", "part/x", "part.x", "kledger.part.x"])
def test_a_module_is_named_by_path_or_by_import(tmp_path: Path, name: str) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "x.py").touch()
    assert "part/x.py" == module_path(tmp_path, name)
    (tmp_path / "kledger").mkdir()
    (tmp_path / "kledger" / "part").symlink_to("../part")
    assert "kledger/part/x.py" == module_path(tmp_path, name)


def test_a_module_without_a_test_of_its_own_is_tested_by_its_folder(tmp_path: Path) -> None:
    assert ["tests/part"] == chosen_tests(tmp_path, "part.x")
    (tmp_path / "tests" / "part").mkdir(parents=True)
    (tmp_path / "tests" / "part" / "test_x.py").touch()
    assert ["tests/part/test_x.py"] == chosen_tests(tmp_path, "kledger.part.x")


def test_an_unknown_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no module part/y\.py"):
        module_path(tmp_path, "part.y")
