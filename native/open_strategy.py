"""Opens the compaction strategy of a topic, where a compaction runs.

Rule: every server names this function to its compactor, and compute processes call it; so loading
the module loads nothing of native clients.
Must not know: what a strategy is.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kledger.topics.compaction.strategy_rule import KeepsLeft


def open_strategy(name: str, topic: str, partition: int) -> "KeepsLeft":
    """Import a strategy, for the compaction of one partition.

    Args:
        name: see `compaction_strategy.imported_strategy`.
        topic: the short name of the topic.
        partition: of its messages.

    Raises:
        StrategyFailed: it cannot be imported, or is none.
    """
    from kledger.native.compaction_strategy import (  # noqa: PLC0415 - few compactions need it
        comparison_by,
        imported_strategy,
    )

    return comparison_by(imported_strategy(name), topic, partition)
