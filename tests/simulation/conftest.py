"""Simulated runs inject faults, and handle contained ones themselves."""

import pytest

from tests.contained import Contained


@pytest.fixture(autouse=True)
def _faults_are_expected(contained: Contained) -> None:
    """Leave contained faults to the run."""
