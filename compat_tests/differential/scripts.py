"""Scripts: the list of what is asked, gathered from the modules that say it.

Rule: a script is a plain function of a side; its name is its own in the whole list.
Must not know: how answers are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from compat_tests.differential.side import Side

Play = Callable[[Side], None]
SCRIPTS: Final[dict[str, Play]] = {}


def script(play: Play) -> Play:
    """Put a function on the list, under its name."""
    add_script(play.__name__, play)
    return play


def add_script(name: str, play: Play) -> None:
    """Put a function on the list, under another name."""
    assert name not in SCRIPTS, f"two scripts are called {name}"
    SCRIPTS[name] = play
