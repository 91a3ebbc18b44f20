"""The objects of a tier, read without a server.

Rule: every error names the object. A store is opened where it is used: executors get the URL and
the options. Must not know: what objects hold.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kledger.ledger import InvalidArgument
from kledger.ledger.offload.object_store_options import (
    RETRY_OPTIONS,
    StoreOptions,
    checked_options,
)
from kledger.spark.source_options import InvalidOption, TierLocation

_REASON_MAX: Final = 300


class TierFailed(RuntimeError):
    """An object cannot be read; the message has its name."""


def _checked_location(location: TierLocation) -> StoreOptions:
    """Check URL and options, without a request.

    Raises:
        InvalidOption: one is wrong.
    """
    options: dict[str, object] = dict(location.options)
    # Options of Spark are texts; the retries are numbers for the library.
    options |= {
        name: int(str(options[name]))
        for name in RETRY_OPTIONS & options.keys()
        if str(options[name]).isdecimal()
    }
    try:
        return checked_options(location.url, options)
    except InvalidArgument as error:
        raise InvalidOption(f"options 'path' and 'storage.…': {error}") from None


class TierStore:
    """Reads of objects, one after the other."""

    def __init__(self, location: TierLocation) -> None:
        """Open the store; no request is sent.

        Raises:
            InvalidOption: the URL or an option is wrong.
            TierFailed: the library refuses them.
        """
        import obstore
        import obstore.store

        checked = _checked_location(location)
        self._obstore: Any = obstore
        self.url = location.url
        # Its stubs have an overload for each kind of store; the names were checked.
        from_url: Callable[..., Any] = obstore.store.from_url
        with self._named("the store"):
            if checked.scheme == "file":
                folder = Path(unquote(urlsplit(location.url).path))
                self._store: Any = obstore.store.LocalStore(folder)
            else:
                self._store = from_url(
                    location.url,
                    config=dict(checked.store),
                    client_options=dict(checked.client),
                    retry_config=dict(checked.retry) or None,
                )

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders in a folder, in order."""
        with self._named(path):
            listed = self._obstore.list_with_delimiter(self._store, path)
            return sorted(each.rpartition("/")[2] for each in listed["common_prefixes"])

    def read(self, name: str) -> memoryview | None:
        """Return a whole object; None if there is none of that name."""
        with self._named(name):
            try:
                return memoryview(self._obstore.get(self._store, name).bytes())
            except FileNotFoundError:
                return None

    def read_range(self, name: str, start: int, end: int) -> memoryview:
        """Return some bytes of an object.

        Raises:
            TierFailed: it does not exist, or cannot be read.
        """
        with self._named(name):
            return memoryview(self._obstore.get_range(self._store, name, start=start, end=end))

    @contextmanager
    def _named(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the library has no common base class of errors
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise TierFailed(f"{self.url}: {name}: {reason[:_REASON_MAX]}") from None
