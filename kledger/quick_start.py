"""Quick start: shortens the time from the command to the first answer.

Rule: this module changes time only; without it the server does the same, a little later. It is for
the server's own process, never for a program that embeds one.
Must not know: the server.
"""

import gc
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec


def prepare() -> None:
    """Stop the garbage collector and load `crc32c`; call this before other imports."""
    # Imports make many objects and no garbage; `freeze_objects` enables the collector again.
    gc.disable()
    _load_crc32c()


def freeze_objects(thresholds: tuple[int, int, int]) -> None:
    """Enable the collector for new objects only; call this when the server is built."""
    gc.freeze()
    gc.set_threshold(*thresholds)
    gc.enable()


def _load_crc32c() -> None:
    """Load the extension of `crc32c` without the package's own first lines.

    These read a version number from the installed metadata, which imports e-mail and archives and
    takes a fifth of a start. A package of another shape is imported as usual.
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
