"""Finders of Spark's archives are forgotten, and importing from the archives goes on."""

from __future__ import annotations

import importlib
import sys
import zipimport
from pathlib import Path
from zipfile import ZipFile

import pytest

from kledger.spark.worker_imports import drop_finders_of_spark


@pytest.mark.parametrize(
    ("archive", "is_dropped"),
    [
        ("pyspark.zip", True),
        ("py4j-0.10.9-src.zip", True),
        ("connector.jar", True),
        ("of_a_user.zip", False),
    ],
)
def test_finders_of_sparks_archives_are_made_again_when_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive: str, is_dropped: bool
) -> None:
    name = archive.partition(".")[0].replace("-", "_") + "_inside"
    path = tmp_path / archive
    with ZipFile(path, "w") as written:
        for module in ("__init__", "first", "second"):
            written.writestr(f"{name}/{module}.py", f"found = {module!r}\n")
    monkeypatch.syspath_prepend(str(path))

    def finders() -> set[str]:
        return {
            each
            for each, finder in sys.path_importer_cache.items()
            if isinstance(finder, zipimport.zipimporter) and finder.archive == str(path)
        }

    try:
        assert "first" == importlib.import_module(f"{name}.first").found
        assert {str(path), f"{path}/{name}"} == finders()
        drop_finders_of_spark()
        assert is_dropped == (not finders())
        importlib.invalidate_caches()
        assert "second" == importlib.import_module(f"{name}.second").found
    finally:
        for module in [each for each in sys.modules if each.partition(".")[0] == name]:
            del sys.modules[module]
