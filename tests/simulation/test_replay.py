"""A seed determines the trace, also in another process and with other hash seeds."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.__main__ import main
from tests.simulation.run import Run, simulation

ROOT = Path(__file__).parents[2]
SEEDS = (3, 13, 159)


def trace_of(seed: int, hash_seed: str) -> str:
    """Return the output of the command line for a seed."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--trace"],
        cwd=ROOT,
        env={"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        text=True,
    ).stdout


@pytest.mark.parametrize(
    "seed", [SEEDS[0], *(pytest.param(n, marks=pytest.mark.slow) for n in SEEDS[1:])]
)
def test_a_seed_writes_the_same_trace_everywhere(seed: int) -> None:
    with simulation():
        run = Run(seed)
        assert run.go() is None
    shown = "\n".join([*run.trace, f"seed {seed} holds", ""])
    assert 20 < len(run.trace)
    assert [shown, shown] == [trace_of(seed, hash_seed) for hash_seed in ("0", "12345")]


def test_what_ran_before_changes_nothing() -> None:
    """Addresses of objects differ then, and must not matter."""
    with simulation():
        alone, behind = Run(SEEDS[1]), Run(SEEDS[1])
        alone.go()
        kept = [Run(seed) for seed in range(20, 30)]
        for run in kept:
            run.go()
        behind.go()
    assert alone.trace == behind.trace


def test_other_seeds_write_other_traces() -> None:
    traces = []
    with simulation():
        for seed in SEEDS:
            run = Run(seed)
            run.go()
            traces.append(run.trace)
    assert len(SEEDS) == len({"\n".join(trace[1:]) for trace in traces})


def test_the_command_line_says_that_all_hold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["simulation", "--seeds", "4", "--first", "100", "--processes", "1"]
    monkeypatch.setattr(sys, "argv", arguments)
    assert 0 == main()
    assert "4 seeds from 100 on: all hold\n" == capsys.readouterr().out
