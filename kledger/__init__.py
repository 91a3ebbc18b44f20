"""kledger: a Kafka-protocol gateway over a managed ledger.

Rule: importing this package is cheap, and finds out whether every room of the application comes
from the same place; a user's own folder called `ledger` would otherwise be taken for ours. It says
so at once, and everything that needs the rooms refuses to work; what starts a process does not.
Must not know: how a server is built (`kledger.wiring`).
"""

import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

__version__ = "0.1.0"

ROOMS = (
    "batches", "gateway", "ledger", "native", "offsets", "runtime", "subscriptions", "topics",
)  # fmt: skip


def _folder_of(room: str) -> Path | None:
    """Return where Python would take a room from, or has taken it from."""
    loaded = sys.modules.get(room)
    spec = loaded.__spec__ if loaded is not None else find_spec(room)
    if spec is None:
        return None
    # A folder without __init__.py has no origin, only places.
    places = list(spec.submodule_search_locations or ())
    return Path(places[0]) if places else Path(spec.origin or room)


def problem_with_rooms(home: Path) -> str | None:
    """Say what is in the way of our rooms, or None when each is the one beside this package.

    Args:
        home: the folder that holds this package.
    """
    for room in ROOMS:
        folder = _folder_of(room)
        if folder is None:
            return f"kledger is incomplete: {home / room} is missing"
        if folder != home / room and folder.resolve() != (home / room).resolve():
            return (
                f"{folder} hides kledger's own package {room!r} ({home / room}); rename it, or run "
                "the server as a process of its own (python -P -m kledger serve), as the pytest "
                "fixture kledger_server does"
            )
    return None


def require_rooms() -> None:
    """Refuse to go on when something else would be taken for a room.

    Raises:
        ImportError: says what hides which room.
    """
    if _problem is not None:
        raise ImportError(_problem)


_problem = problem_with_rooms(Path(__file__).parent.parent)
if _problem is not None:
    warnings.warn(_problem, RuntimeWarning, stacklevel=2)
