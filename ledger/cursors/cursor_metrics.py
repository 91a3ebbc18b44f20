"""Cursor metrics: PIP-269's metrics of a cursor, its backlog, and those that its user adds.

Rule: names and labels are Pulsar's. A managed ledger whose name has slashes is a topic in a
namespace, any other one a topic of the default namespace. All of it is shown while the cursor is
open; a counter continues when the cursor is opened again.
Must not know: how metrics are shown. For operators: docs/OPERATIONS.md.
"""

from collections.abc import Callable

from kledger.ledger.cursors.cursor import Cursor
from kledger.ledger.revision_counts import ABOUT, RevisionCounts
from kledger.runtime.metrics import Counter, Metrics

EPOCH_INCREASE_COUNT = "pulsar_cursor_epoch_increase_count"
EPOCH_INCREASE_TASK_STATE = "pulsar_cursor_epoch_increase_task_state"
BACK_LOG = "pulsar_subscription_back_log"
DEFAULT_NAMESPACE = "public/default"


class CursorMetrics:
    """The metrics of the cursors of one managed ledger."""

    def __init__(
        self,
        metrics: Metrics,
        counts: RevisionCounts,
        *,
        cluster: str,
        managed_ledger: str,
        shown_as: str,
    ) -> None:
        """Args: shown_as: namespace and topic, in place of the managed ledger's name."""
        namespace, _, topic = shown_as.rpartition("/")
        self._metrics = metrics
        self._counts = counts
        self._managed_ledger = managed_ledger
        self._names: set[str] = set()
        self._labels = {
            "cluster": cluster,
            "namespace": namespace or DEFAULT_NAMESPACE,
            "topic": topic,
        }

    def show(self, cursor: Cursor) -> None:
        """Show how often a cursor was revised, whether a revision runs, and its backlog."""
        if cursor.is_durable:
            cursor.revision.count = self._counts.of(self._managed_ledger, cursor.name)
        else:
            cursor.revision.count = Counter(ABOUT)
        self._names.add(EPOCH_INCREASE_COUNT)
        self._metrics.show(EPOCH_INCREASE_COUNT, cursor.revision.count, self._labels_of(cursor))
        self.show_user_metric(
            cursor,
            EPOCH_INCREASE_TASK_STATE,
            lambda: int(cursor.revision.is_running),
            "whether a cursor is being revised",
        )
        self.show_user_metric(
            cursor, BACK_LOG, lambda: cursor.backlog, "entries that are not acknowledged"
        )

    def show_user_metric(
        self, cursor: Cursor, metric: str, read: Callable[[], int], about: str
    ) -> None:
        """Show one number more, with the cursor's labels."""
        self._names.add(metric)
        self._metrics.gauge(metric, read, about, self._labels_of(cursor))

    def hide(self, cursor: Cursor) -> None:
        """Stop showing a cursor."""
        labels = self._labels_of(cursor)
        for name in self._names:
            self._metrics.drop(name, labels)
        if cursor.is_durable:
            self._counts.closed(self._managed_ledger, cursor.name)

    def forget(self, name: str) -> None:
        """Drop the counters of a deleted cursor, so that a new one of its name begins at zero."""
        self._counts.forget(self._managed_ledger, name)

    def _labels_of(self, cursor: Cursor) -> dict[str, str]:
        return {**self._labels, "subscription": cursor.name}
