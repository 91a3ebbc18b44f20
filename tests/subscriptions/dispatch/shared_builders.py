"""Builders of shared and key_shared states."""

from collections.abc import Sequence
from typing import TypeVar

from kledger.ledger import Entry, Position
from kledger.subscriptions.dispatch.dispatch_state import DeliveriesByConsumer
from kledger.subscriptions.dispatch.key_shared_state import KeySharedState
from kledger.subscriptions.dispatch.multiple_consumers_state import MultipleConsumersState
from kledger.subscriptions.dispatch.shared_state import SharedState
from kledger.subscriptions.dispatch_options import DispatchOptions
from kledger.subscriptions.entry_view import KEY_HASH_COUNT
from kledger.subscriptions.model import ConsumerOptions
from tests.subscriptions.dispatch.builders import consumer, records_of

MIDDLE = KEY_HASH_COUNT // 2
LOW, HIGH = ((0, MIDDLE),), ((MIDDLE + 1, KEY_HASH_COUNT - 1),)

State = TypeVar("State", bound=MultipleConsumersState)


def shared(*consumers: ConsumerOptions, permits: int = 99, **options: int) -> SharedState:
    return _with(SharedState(DispatchOptions(**options)), consumers, permits)


def key_shared(*consumers: ConsumerOptions, permits: int = 99, **options: int) -> KeySharedState:
    return _with(KeySharedState(DispatchOptions(**options)), consumers, permits)


def some(count: int, **options: object) -> list[ConsumerOptions]:
    return [consumer(f"c{number}", **options) for number in range(count)]


def join(state: MultipleConsumersState, options: ConsumerOptions, permits: int = 99) -> int:
    number, rewind = state.add(options)
    if rewind is not None:
        state.rewound()
    if permits:
        state.consumers[number].add_permits(permits)
    return number


def _with(state: State, consumers: Sequence[ConsumerOptions], permits: int) -> State:
    for each in consumers:
        join(state, each, permits)
    return state


def read(state: MultipleConsumersState, *entries: Entry, now_ms: int = 0) -> dict[int, list[str]]:
    """Dispatch new entries; return the records of each consumer, as `entry.record`."""
    out, taken = state.dispatch(entries, {}, now_ms)
    assert len(entries) == taken
    return shown(out)


def again(state: MultipleConsumersState, *entries: Entry) -> dict[int, list[str]]:
    """Dispatch those of the entries that are queued; return the records of each consumer."""
    wanted = state.positions_to_replay()
    found = [each for each in entries if each.position in wanted]
    assert wanted == [each.position for each in found]
    return shown(state.dispatch_replayed(found, {}, ()))


def shown(out: DeliveriesByConsumer) -> dict[int, list[str]]:
    return {
        number: [f"{at.entry_id}.{index}" for each in given for at, index in records_of(each)]
        for number, given in out.items()
    }


def wanted(state: MultipleConsumersState) -> list[int]:
    return [position.entry_id for position in state.positions_to_replay()]


def counts(out: DeliveriesByConsumer, number: int) -> list[tuple[Position, int, int]]:
    return [(each.position, each.records, each.redelivery_count) for each in out[number]]
