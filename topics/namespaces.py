"""Namespaces: which exist, and the settings that their topics share.

Rule: a namespace exists from the moment its record is durable until the record is deleted;
`public/default` exists always, and has a record only once it has settings. Changes are submitted by
the registry, one at a time.
Must not know: topics.
"""

from collections.abc import Callable, Mapping

from kledger.ledger import TableStore
from kledger.ledger.record_table import RecordChange, RecordTable
from kledger.topics.config.topic_config import NO_CONFIGS
from kledger.topics.errors import NamespaceAlreadyExists, TooManyNamespaces, UnknownNamespace
from kledger.topics.partition.records import NAMESPACE_ROWS, NamespaceRecord
from kledger.topics.topic_names import DEFAULT_NAMESPACE, check_namespace

NAMESPACES_MAX = 10_000
"""Namespaces of a store at most, next to `public/default`."""


class Namespaces:
    """The namespaces of one store; the registry makes it, and alone changes it."""

    def __init__(self, tables: TableStore, on_replay: Callable[[str], None]) -> None:
        """Prepare; `load` reads them.

        Args:
            tables: have them.
            on_replay: called with the name of a namespace whose record has changed.
        """
        self._records = RecordTable(tables, NAMESPACE_ROWS, on_replay)

    def load(self) -> None:
        """Read all of them. Raises UnreadableRow."""
        self._records.load()

    def all(self) -> list[str]:
        """Return every name, sorted."""
        return sorted({DEFAULT_NAMESPACE, *self._records.durable})

    def exists(self, name: str) -> bool:
        """Whether there is a namespace of that name."""
        return name == DEFAULT_NAMESPACE or name in self._records.durable

    def configs_of(self, name: str) -> Mapping[str, str]:
        """Return the settings of a namespace; none if it does not exist."""
        record = self._records.get(name)
        return NO_CONFIGS if record is None else record.configs

    @property
    def is_writing(self) -> bool:
        """Whether a write is under way."""
        return self._records.is_writing

    def check_new(self, name: str) -> None:
        """Check that a namespace can be created.

        Raises:
            InvalidNamespaceName, NamespaceAlreadyExists, TooManyNamespaces: it cannot.
        """
        check_namespace(name)
        if self.exists(name):
            raise NamespaceAlreadyExists(f"namespace {name!r} already exists")
        if len(self._records.durable) >= NAMESPACES_MAX:
            raise TooManyNamespaces(
                f"namespace {name!r}: there are {len(self._records.durable)} namespaces already, "
                f"expected at most {NAMESPACES_MAX}"
            )

    def check_known(self, name: str) -> None:
        """Check that a namespace exists.

        Raises:
            InvalidNamespaceName, UnknownNamespace: it does not.
        """
        check_namespace(name)
        if not self.exists(name):
            raise unknown_namespace(name)

    def creation(self, name: str, now_ms: int) -> RecordChange:
        """Return the change that creates a namespace."""
        return self._records.change(name, NamespaceRecord(name, {}, now_ms))

    def deletion(self, name: str) -> RecordChange:
        """Return the change that deletes a namespace."""
        return self._records.change(name, None)

    def change(self, name: str, configs: Mapping[str, str], now_ms: int) -> RecordChange:
        """Return the change of the settings of a namespace that exists.

        Args:
            name: of the namespace.
            configs: all its settings as they will be.
            now_ms: wall time, for the first record of `public/default`.
        """
        old = self._records.get(name)
        created_ms = now_ms if old is None else old.created_ms
        return self._records.change(name, NamespaceRecord(name, dict(configs), created_ms))


def unknown_namespace(name: str) -> UnknownNamespace:
    """Return the error for a namespace that does not exist."""
    return UnknownNamespace(
        f"namespace {name!r} does not exist: create it first, or let topics create theirs with"
        " namespaces.auto.create=true"
    )
