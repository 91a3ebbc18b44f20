"""Folders of these tests: in memory, as for the engines."""

from tests.ledger.engine.conftest import tmp_path

__all__ = ["tmp_path"]
