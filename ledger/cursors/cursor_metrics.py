"""Cursor metrics: what PIP-269 wants to be seen of every cursor.

Rule: names and labels are the proposal's. A managed ledger whose name has slashes is a topic in a
namespace, any other one a topic of the default namespace.
Must not know: how metrics are shown.
"""

from ledger.cursors.cursor import Cursor
from runtime.metrics import Metrics

EPOCH_INCREASE_COUNT = "pulsar_cursor_epoch_increase_count"
EPOCH_INCREASE_TASK_STATE = "pulsar_cursor_epoch_increase_task_state"
DEFAULT_NAMESPACE = "public/default"


class CursorMetrics:
    """The metrics of the cursors of one managed ledger."""

    def __init__(self, metrics: Metrics, *, cluster: str, managed_ledger: str) -> None:
        namespace, _, topic = managed_ledger.rpartition("/")
        self._metrics = metrics
        self._labels = {
            "cluster": cluster,
            "namespace": namespace or DEFAULT_NAMESPACE,
            "topic": topic,
        }

    def show(self, cursor: Cursor) -> None:
        """Show how often a cursor was revised, and whether it is being revised."""
        labels = self._labels_of(cursor)
        self._metrics.gauge(
            EPOCH_INCREASE_COUNT, lambda: cursor.revision.number, "revisions of a cursor", labels
        )
        self._metrics.gauge(
            EPOCH_INCREASE_TASK_STATE,
            lambda: int(cursor.revision.is_running),
            "whether a cursor is being revised",
            labels,
        )

    def hide(self, cursor: Cursor) -> None:
        """Show nothing of a cursor any more."""
        labels = self._labels_of(cursor)
        self._metrics.drop(EPOCH_INCREASE_COUNT, labels)
        self._metrics.drop(EPOCH_INCREASE_TASK_STATE, labels)

    def _labels_of(self, cursor: Cursor) -> dict[str, str]:
        return {**self._labels, "subscription": cursor.name}
