"""Runs hear of contained faults themselves, and inject some."""

import pytest

from tests.contained import Contained


@pytest.fixture(autouse=True)
def _faults_are_expected(contained: Contained) -> None:
    """Leave it to the run what a contained fault means."""
