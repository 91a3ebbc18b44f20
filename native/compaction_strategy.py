"""Compaction strategies: which of two messages of a key stays, in table views and in compactions.

Rule: both show a strategy the same messages in the same order: every message with a key but the
first of its key, against the one that is kept so far, or against None when that has removed the
key. So both keep the same.
Must not know: readers, the storage.
Source: Pulsar's TopicCompactionStrategy.
"""

from importlib import import_module
from typing import Protocol

from kledger.ledger import Position
from kledger.native.errors import InvalidArgument
from kledger.native.message import EVENT_TIME_BIT, Message, MessageEntry
from kledger.runtime.foreign_error import shown
from kledger.topics.compaction.strategy_rule import KeepsLeft, StrategyRecord
from kledger.topics.errors import StrategyFailed


class CompactionStrategy(Protocol):
    """Decides which of two messages of a key is kept; plain calls.

    A table view is given one (`Client.create_table_view`); the compactor imports the one that the
    topic's `compaction.strategy` names, in a process of its own.
    """

    def should_keep_left(self, previous: Message | None, current: Message) -> bool:
        """Whether the previous message stays; None: the key was removed."""
        ...

    def on_skip(self, key: bytes, previous: Message | None, current: Message) -> None:
        """Note that `current` was skipped."""
        ...


def check_strategy(strategy: object) -> None:
    """Check that an object can be one. Raises InvalidArgument."""
    for name in ("should_keep_left", "on_skip"):
        if not callable(getattr(strategy, name, None)):
            raise InvalidArgument(
                f"strategy: expected one with should_keep_left and on_skip, got {strategy!r}"
            )


def imported_strategy(name: str) -> CompactionStrategy:
    """Import a strategy.

    Args:
        name: `module:attribute`; the attribute is a strategy, or a class that is called to make
            one.

    Raises:
        StrategyFailed: it cannot be imported, or is none.
    """
    try:
        module, _, attribute = name.partition(":")
        found = getattr(import_module(module), attribute)
        strategy: CompactionStrategy = found() if isinstance(found, type) else found
        check_strategy(strategy)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is not our code
        raise StrategyFailed(f"strategy {name} cannot be loaded: {shown(error)}") from None
    return strategy


def comparison_by(strategy: CompactionStrategy, topic: str, partition: int) -> KeepsLeft:
    """Return what the compactor of a partition calls to ask a strategy."""

    def keeps_left(kept: StrategyRecord | None, record: StrategyRecord) -> bool:
        previous = None if kept is None else _message_of(kept, topic, partition)
        current = _message_of(record, topic, partition)
        if not strategy.should_keep_left(previous, current):
            return False
        strategy.on_skip(record.key, previous, current)
        return True

    return keeps_left


def _message_of(record: StrategyRecord, topic: str, partition: int) -> Message:
    """Return the message that a consumer would get."""
    is_event_time = record.attributes & EVENT_TIME_BIT
    position = Position(record.ledger_id, record.entry_id)
    return Message(
        MessageEntry(topic, partition, position, record.batch_size),
        record.batch_index,
        key=record.key,
        value=record.value,
        headers=record.headers,
        publish_timestamp=record.timestamp,
        event_timestamp=record.producer_timestamp if is_event_time else None,
        offset=record.offset,
    )
