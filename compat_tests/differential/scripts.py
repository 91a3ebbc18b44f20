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
    assert play.__name__ not in SCRIPTS, f"two scripts are called {play.__name__}"
    SCRIPTS[play.__name__] = play
    return play
