"""Planted mistakes: each is caught within so many seeds, and its seed replays the same."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.simulation.run import Failure, simulation
from tests.simulation.seeds import MakeRun, run_seed


@dataclass(frozen=True)
class PlantedMistake:
    """A wrong variant, and what it replaces."""

    owner: object
    name: str
    wrong: Any
    seeds: int


def mistake_name(mistake: PlantedMistake) -> str:
    """Return the name of a test of it."""
    name: str = getattr(mistake.wrong, "__name__", mistake.name)
    return name


def first_failure(seeds: Iterable[int], make: MakeRun) -> Failure | None:
    """Return that of the first seed that breaks; None: all hold."""
    with simulation():
        return next((failure for seed in seeds if (failure := run_seed(seed, make))), None)


def expect_caught(
    mistake: PlantedMistake,
    make: MakeRun,
    option: str,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Failure, Failure]:
    """Plant it and find the first seed that breaks; return that failure and the one of a replay.

    Args:
        mistake: is planted until the end of the test.
        make: makes the run of a seed.
        option: of the command line that replays such a run.
        monkeypatch: of the test.
    """
    monkeypatch.setattr(mistake.owner, mistake.name, mistake.wrong)
    failure = first_failure(range(mistake.seeds), make)
    assert failure is not None, f"not caught within {mistake.seeds} seeds"
    assert f"{option} --seed {failure.seed} --trace" in str(failure)
    again = first_failure([failure.seed], make)
    assert again is not None
    assert (failure.step, failure.trace) == (again.step, again.trace)
    return failure, again
