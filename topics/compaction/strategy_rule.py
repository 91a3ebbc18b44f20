"""Strategy rule: how a run of the compactor asks a compaction strategy, and what it shows it.

Rule: plain values, which travel to the compute process; the process imports the strategy there,
with the function that it is given for that. Whatever a strategy raises is a `StrategyFailed`.
Must not know: what a strategy decides, messages.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kledger.batches.record import Header
from kledger.runtime.foreign_error import shown
from kledger.topics.errors import StrategyFailed


class StrategyRecord(NamedTuple):
    """A record with everything that a message of it shows.

    Attributes:
        timestamp: as consumers see it, in ms: that of the append under LogAppendTime.
        producer_timestamp: as its producer has set it, in ms.
        attributes: of the record.
        ledger_id, entry_id: the position of its entry, before any compaction.
        batch_index: which record of that entry it was.
        batch_size: how many records that entry had.
    """

    offset: int
    timestamp: int
    producer_timestamp: int
    key: bytes
    value: bytes | None
    headers: tuple[Header, ...]
    attributes: int
    ledger_id: int
    entry_id: int
    batch_index: int
    batch_size: int


KeepsLeft: TypeAlias = Callable[[StrategyRecord | None, StrategyRecord], bool]
"""Called with the record of a key that is kept so far, None if it has removed the key, and with the
next record of the key; whether the next one goes."""

OpenStrategy: TypeAlias = Callable[[str, str, int], KeepsLeft]
"""Called with the name of a strategy, a topic and a partition; a function of a module. Raises
StrategyFailed: there is no such strategy."""


class StrategyRule(NamedTuple):
    """The strategy of a run.

    Attributes:
        name: `module:attribute`.
        topic, partition: of the records.
        open: imports it.
    """

    name: str
    topic: str
    partition: int
    open: OpenStrategy

    def opened(self) -> KeepsLeft:
        """Import the strategy. Raises StrategyFailed."""
        keeps_left = self.open(self.name, self.topic, self.partition)

        def asked(kept: StrategyRecord | None, record: StrategyRecord) -> bool:
            try:
                return bool(keeps_left(kept, record))
            except MemoryError:
                raise  # the process ends
            except (Exception, SystemExit) as error:  # noqa: BLE001 - it is not our code
                raise StrategyFailed(
                    f"strategy {self.name} failed for the record at offset {record.offset}:"
                    f" {shown(error)}"
                ) from None

        return asked


def no_strategies(name: str, topic: str, partition: int) -> KeepsLeft:
    """Refuse every strategy, where nothing is there to import one."""
    raise StrategyFailed(f"strategy {name} of {topic}-{partition}: none can be loaded here")
