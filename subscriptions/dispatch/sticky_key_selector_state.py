"""Sticky key selector: which consumer of key_shared owns which key hashes.

Rule: a key hash has at most one owner. Consistent hashing: each has one while there are consumers,
and when a consumer joins or leaves, no key hash moves between two others. Ranges: each consumer
owns the ranges that it names; a key hash outside of all ranges has no owner.
Must not know: records, permits. Source: Pulsar's ConsistentHashingStickyKeyConsumerSelector and
HashRangeExclusiveStickyKeyConsumerSelector.
"""

from bisect import bisect_left
from hashlib import blake2b
from struct import Struct
from typing import Protocol

from kledger.subscriptions.entry_view import KEY_HASH_COUNT
from kledger.subscriptions.errors import ConsumerAssign, ConsumerBusy, InvalidRequest
from kledger.subscriptions.model import ConsumerOptions

DIGESTS_PER_CONSUMER = 4
"""Each gives 32 points: with 128 in all, shares differ by about a tenth."""

_POINTS = Struct(">32H")


class StickyKeySelector(Protocol):
    """The owners of key hashes."""

    def add(self, number: int, options: ConsumerOptions) -> None:
        """Add a consumer. Raises ConsumerBusy, ConsumerAssign, InvalidRequest."""
        ...

    def remove(self, number: int) -> None:
        """Remove a consumer."""
        ...

    def owner_of(self, key_hash: int) -> int | None:
        """Return the consumer that owns a key hash, or None."""
        ...


def selector_for(options: ConsumerOptions) -> StickyKeySelector:
    """Return a selector of the kind that the first consumer of a subscription requests."""
    return ConsistentHashSelector() if options.key_ranges is None else HashRangeSelector()


class ConsistentHashSelector:
    """Consistent hashing: consumers are points on a ring; the next point owns a key hash."""

    __slots__ = ("_members", "_owners", "_points")

    def __init__(self) -> None:
        self._members: dict[int, str] = {}
        self._points: list[int] = []
        self._owners: list[int] = []

    def add(self, number: int, options: ConsumerOptions) -> None:
        """Add a consumer with its share."""
        if options.key_ranges is not None:
            raise ConsumerBusy("the consumers share all key hashes, and this one names ranges")
        self._members[number] = options.name
        self._lay_out_ring()

    def remove(self, number: int) -> None:
        """Remove a consumer; its share goes to the others."""
        del self._members[number]
        self._lay_out_ring()

    def owner_of(self, key_hash: int) -> int | None:
        """Return the consumer of the next point."""
        points = self._points
        if not points:
            return None
        return self._owners[bisect_left(points, key_hash) % len(points)]

    def _lay_out_ring(self) -> None:
        """Sort the points; of two equal ones, the one with the smaller name is kept."""
        ring: dict[int, int] = {}
        ranks: dict[str, int] = {}
        for name, number in sorted((name, number) for number, name in self._members.items()):
            rank = ranks[name] = ranks.get(name, -1) + 1
            for point in _ring_points_of(name, rank):
                ring.setdefault(point, number)
        self._points = sorted(ring)
        self._owners = [ring[point] for point in self._points]


class HashRangeSelector:
    """Sticky: the ranges that the consumers name."""

    __slots__ = ("_ends", "_ranges")

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, int]] = []
        self._ends: list[int] = []

    def add(self, number: int, options: ConsumerOptions) -> None:
        """Add a consumer with the ranges that it names."""
        if options.key_ranges is None:
            raise ConsumerBusy("the consumers name ranges of key hashes, and this one does not")
        named = _checked(options.key_ranges)
        for first, last in named:
            for other_first, other_last, _ in self._ranges:
                if first <= other_last and other_first <= last:
                    raise ConsumerAssign(
                        f"range {first}-{last} of consumer {options.name} overlaps"
                        f" {other_first}-{other_last} of another one"
                    )
        self._set([*self._ranges, *((first, last, number) for first, last in named)])

    def remove(self, number: int) -> None:
        """Remove a consumer; its ranges have no owner then."""
        self._set([each for each in self._ranges if each[2] != number])

    def owner_of(self, key_hash: int) -> int | None:
        """Return the consumer whose range contains a key hash."""
        index = bisect_left(self._ends, key_hash)
        if index == len(self._ends) or self._ranges[index][0] > key_hash:
            return None
        return self._ranges[index][2]

    def _set(self, ranges: list[tuple[int, int, int]]) -> None:
        self._ranges = sorted(ranges)
        self._ends = [last for _, last, _ in self._ranges]


def _checked(ranges: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """Return a consumer's ranges in order, or raise InvalidRequest."""
    if not ranges:
        raise InvalidRequest("key ranges: expected at least one")
    ordered = sorted(ranges)
    before = -1
    for first, last in ordered:
        if not 0 <= first <= last < KEY_HASH_COUNT:
            raise InvalidRequest(
                f"key range {first}-{last}, expected within 0-{KEY_HASH_COUNT - 1}"
            )
        if first <= before:
            raise InvalidRequest(f"key range {first}-{last} begins before {before} ends")
        before = last
    return ordered


def _ring_points_of(name: str, rank: int) -> list[int]:
    """Return the points of a consumer on the ring; `rank` separates equal names."""
    points: list[int] = []
    for index in range(DIGESTS_PER_CONSUMER):
        seed = f"{index}:{rank}:{name}".encode("utf-8", "surrogateescape")
        points += _POINTS.unpack(blake2b(seed).digest())
    return points
