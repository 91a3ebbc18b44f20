"""kledger: a Kafka-protocol gateway over a managed ledger.

Rule: importing this package is cheap, and proves that every room of the application comes from the
same place; a user's own folder called `ledger` would otherwise be taken for ours.
Must not know: how a server is built (`kledger.wiring`).
"""

import sys
from importlib.util import find_spec
from pathlib import Path

__version__ = "0.1.0"

ROOMS = ("batches", "gateway", "ledger", "offsets", "runtime", "topics")


def _folder_of(room: str) -> Path | None:
    """Return where Python would take a room from, or has taken it from."""
    loaded = sys.modules.get(room)
    spec = loaded.__spec__ if loaded is not None else find_spec(room)
    if spec is None:
        return None
    # A folder without __init__.py has no origin, only places.
    places = list(spec.submodule_search_locations or ())
    return Path(places[0]) if places else Path(spec.origin or room)


def check_rooms(home: Path) -> None:
    """Make sure that each room is the one beside this package.

    Args:
        home: the folder that holds this package.

    Raises:
        ImportError: something else has the name of a room, or a room is missing.
    """
    for room in ROOMS:
        folder = _folder_of(room)
        if folder is None:
            raise ImportError(f"kledger is incomplete: {home / room} is missing")
        if folder != home / room and folder.resolve() != (home / room).resolve():
            raise ImportError(
                f"{folder} hides kledger's own package {room!r} ({home / room}); rename it, "
                "or start the server as a process of its own: python -P -m kledger serve"
            )


check_rooms(Path(__file__).parent.parent)
