"""Quick start: what keeps the time from the command to the first answer short.

Rule: everything here is about time only; without it the server does the same, a little later. It
is for the server's own process, never for a program that embeds one.
Must not know: what is started.
"""

import gc
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec


def prepare() -> None:
    """Call before anything big is imported."""
    # Importing makes many objects and no garbage; `freeze_objects` turns the collector on.
    gc.disable()
    _load_crc32c()


def freeze_objects(thresholds: tuple[int, int, int]) -> None:
    """Call when the server is built: what exists now stays and need not be looked at again."""
    gc.freeze()
    gc.set_threshold(*thresholds)
    gc.enable()


def _load_crc32c() -> None:
    """Load the extension of `crc32c` without the package's own first lines.

    They ask the installed metadata for a version number, which imports e-mail, archives and a
    fifth of what a start may cost. If the package does not look as expected it is left alone.
    """
    spec = find_spec("crc32c")
    if spec is None or "crc32c" in sys.modules:
        return
    package = module_from_spec(spec)
    sys.modules["crc32c"] = package
    try:
        extension = import_module("crc32c._crc32c")
        vars(package)["crc32c"] = extension.crc32c
    except (ImportError, AttributeError):
        del sys.modules["crc32c"]
