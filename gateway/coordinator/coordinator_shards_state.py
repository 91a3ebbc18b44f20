"""Coordinator shards: the parts of the groups, or of the transactional ids, that this node serves.

Rule: pure; a key belongs to the same shard for ever. Requests for a key of a detached shard are
refused with NOT_COORDINATOR, of one that is being loaded with COORDINATOR_LOAD_IN_PROGRESS.
Must not know: whether a shard has groups or transactional ids, which broker serves the others.

Source: Kafka places a group and a transactional id into a partition of `__consumer_offsets` and of
`__transaction_state` by `Utils.abs(key.hashCode()) % partitions`.
"""

import struct
from collections.abc import Callable, Collection
from functools import cache, lru_cache
from typing import Final, TypeAlias

from kledger.gateway.wire.error_codes import ErrorCode

INT_MIN: Final = -(1 << 31)
NOT_COORDINATOR: Final = ErrorCode.NOT_COORDINATOR
LOADING: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

SHARDS_REMEMBERED_MAX: Final = 4_096
"""Keys in use whose shards are kept, as a transaction asks for the same one at every step."""
REMEMBERED_KEY_LENGTH_MAX: Final = 256
"""Shards of longer keys are not kept."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""In requests between brokers its partitions stand for the shards of the groups, by number."""

CoordinatedShards: TypeAlias = Callable[[int], Collection[int]]
"""Returns which of so many shards a broker coordinates."""
Includes: TypeAlias = Callable[[str], bool]
"""Whether a key belongs to one of some shards."""


def java_hash(text: str) -> int:
    """Return what `String.hashCode` of Java returns: a signed number of 32 bits."""
    number = 0
    for unit in text.encode() if text.isascii() else _utf16_units(text):
        number = (31 * number + unit) & 0xFFFFFFFF
    return number if number < 1 << 31 else number - (1 << 32)


def _utf16_units(text: str) -> tuple[int, ...]:
    encoded = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(encoded) // 2}H", encoded)


def shard_of(key: str, count: int) -> int:
    """Return the shard of a group id or transactional id, from 0 on.

    Args:
        key: the group id or the transactional id.
        count: of all shards of the kind, at least 1.
    """
    number = java_hash(key)
    # Java's abs of the least number is that number; Kafka's is 0.
    return 0 if number == INT_MIN else abs(number) % count


_remembered_shard_of = lru_cache(SHARDS_REMEMBERED_MAX)(shard_of)


class CoordinatorShards:
    """The shards of one kind, and how requests for each are answered.

    Attributes:
        count: of all shards; they are numbered from 0 on.
    """

    __slots__ = ("_common", "_errors", "count")

    def __init__(self, count: int) -> None:
        """Begin with every shard detached."""
        assert count > 0, f"expected at least one shard, got {count}"
        self.count = count
        self._errors = [NOT_COORDINATOR] * count
        self._common: ErrorCode | None = NOT_COORDINATOR
        """What all shards have in common: as long as they do, no key is hashed."""

    def error(self, key: str) -> ErrorCode:
        """Return why requests for a key are refused; NONE if its shard is attached."""
        if self._common is not None:
            return self._common
        find = _remembered_shard_of if len(key) <= REMEMBERED_KEY_LENGTH_MAX else shard_of
        return self._errors[find(key, self.count)]

    def error_of(self, number: int) -> ErrorCode:
        """Return why requests for a shard are refused; NONE if it is attached."""
        if not 0 <= number < self.count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self._errors[number]

    def number_of(self, key: str) -> int:
        """Return the shard of a key."""
        return shard_of(key, self.count)

    @property
    def is_loading(self) -> bool:
        """Whether a shard is being loaded."""
        return LOADING in self._errors

    def are_attached(self, numbers: Collection[int]) -> bool:
        """Whether all of these shards are."""
        return not any(self._errors[number] for number in numbers)

    def all_numbers(self) -> Collection[int]:
        """Return the numbers of all shards."""
        return range(self.count)

    def attached(self) -> list[int]:
        """Return the numbers of the attached shards, ascending."""
        return [number for number, error in enumerate(self._errors) if not error]

    def including(self, numbers: Collection[int]) -> Includes:
        """Return a function that says whether a key belongs to one of these shards.

        It is for one move: it remembers every key, as a move asks for the same ones repeatedly.
        """
        wanted, count = frozenset(numbers), self.count
        if len(wanted) == count:
            return lambda key: True
        return cache(lambda key: shard_of(key, count) in wanted)

    def attach(self, numbers: Collection[int]) -> None:
        """Let requests for these shards be served."""
        self._set(numbers, ErrorCode.NONE)

    def begin_loading(self, numbers: Collection[int]) -> None:
        """Refuse requests for these shards until they are attached: clients ask here again."""
        self._set(numbers, LOADING)

    def detach(self, numbers: Collection[int]) -> None:
        """Refuse requests for these shards: clients look for another coordinator."""
        self._set(numbers, NOT_COORDINATOR)

    def _set(self, numbers: Collection[int], error: ErrorCode) -> None:
        self.check(numbers)
        for number in numbers:
            self._errors[number] = error
        first = self._errors[0]
        self._common = first if all(each is first for each in self._errors) else None

    def check(self, numbers: Collection[int]) -> None:
        """Raise unless these are numbers of shards.

        Raises:
            ValueError: one of them is not.
        """
        for number in numbers:
            if not 0 <= number < self.count:
                raise ValueError(f"shard {number}: expected 0 to {self.count - 1}")
