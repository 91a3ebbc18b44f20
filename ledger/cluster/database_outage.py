"""Database outage: logs when the database of a cluster stops answering, and when it answers again.

Rule: each once, however many calls fail in between.
"""

import logging

from kledger.ledger.cluster.database import DatabaseError

logger = logging.getLogger(__name__)


class DatabaseOutage:
    """Whether the database answered the last call."""

    def __init__(self) -> None:
        self._is_unavailable = False

    def failed(self, error: DatabaseError) -> None:
        """A call was not answered."""
        if not self._is_unavailable:
            logger.warning("the database of the cluster is unavailable: %s", error)
        self._is_unavailable = True

    def answered(self) -> None:
        """A call was answered."""
        if self._is_unavailable:
            logger.info("the database of the cluster is available again")
        self._is_unavailable = False
