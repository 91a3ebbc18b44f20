"""Which partitions a read has, and from which offset to which.

Rule: options are turned into plain offsets on the driver, once, so that all tasks of a read see the
same. Must not know: Spark, how ranges are divided.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kledger.spark.offset_range import EARLIEST, LATEST, KafkaPartition, Offsets
from kledger.spark.source_options import Bound, InvalidOption, SourceOptions


class DataLost(RuntimeError):
    """Offsets that were asked for are not in the log any more, or not yet."""


class OffsetSource(Protocol):
    """What is asked for partitions and offsets: a `KafkaClient`, or the topics in a tier."""

    def topics(self, names: Sequence[str] | None = None) -> dict[str, int]:
        """Return how many partitions topics have; None: all topics."""
        ...

    def offsets(
        self, times: Mapping[KafkaPartition, int], *, is_committed: bool
    ) -> dict[KafkaPartition, int]:
        """Return the first offset at or behind a time, in each partition; -1 where there is none.

        A time is in milliseconds since 1970, or EARLIEST, or LATEST.
        """
        ...


class RangeLookup:
    """The offsets of one read."""

    def __init__(self, client: OffsetSource, options: SourceOptions) -> None:
        self._client, self._options = client, options

    def partitions(self) -> list[KafkaPartition]:
        """Return the partitions that the options choose now, in order.

        Raises:
            KafkaFailed: a topic does not exist.
            InvalidOption: the pattern is no regular expression.
        """
        options = self._options
        if options.assigned:
            counts = self._client.topics(sorted({where.topic for where in options.assigned}))
            missing = [each for each in options.assigned if each.partition >= counts[each.topic]]
            if missing:
                raise InvalidOption(f"option 'assign': {missing[0]} does not exist")
            return sorted(set(options.assigned))
        if options.pattern is None:
            counts = self._client.topics(options.topics)
        else:
            try:
                pattern = re.compile(options.pattern)
            except re.error as error:
                raise InvalidOption(f"option 'subscribePattern': {error}") from None
            found = self._client.topics().items()
            counts = {name: count for name, count in found if pattern.fullmatch(name)}
        return [
            KafkaPartition(topic, partition)
            for topic in sorted(counts)
            for partition in range(counts[topic])
        ]

    def earliest(self, partitions: Iterable[KafkaPartition]) -> Offsets:
        """Return where logs start."""
        return self._client.offsets(
            dict.fromkeys(partitions, EARLIEST), is_committed=self._options.is_committed
        )

    def latest(self, partitions: Iterable[KafkaPartition]) -> Offsets:
        """Return where logs end, for the isolation level of the options."""
        return self._client.offsets(
            dict.fromkeys(partitions, LATEST), is_committed=self._options.is_committed
        )

    def start(self, partitions: list[KafkaPartition], *, default: int) -> Offsets:
        """Return the offsets to start at.

        Raises:
            InvalidOption: they do not name each partition, or a time has no record behind it.
        """
        bound = self._options.start or Bound(kind="offsets", everywhere=default)
        if self._options.is_latest_without_match or bound.kind == "offsets":
            return self._resolved(bound, partitions, "starting")
        found = self._resolved(bound, partitions, "starting", without_match=-1)
        missing = sorted(where for where, offset in found.items() if offset < 0)
        if missing and self._options.tier is not None:
            # The end of a tier is not the end of the log, so there are no rows, and no mistake.
            return found | self.latest(missing)
        if missing:
            raise InvalidOption(
                f"No offset matched from request of topic-partition {missing[0]}: it has no record"
                " at or behind the starting timestamp; the option"
                " startingOffsetsByTimestampStrategy=latest starts at its end"
            )
        return found

    def end(self, partitions: list[KafkaPartition]) -> Offsets:
        """Return the offsets to end before.

        Raises:
            InvalidOption: they do not name each partition.
        """
        return self._resolved(self._options.end, partitions, "ending")

    def within_logs(self, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """Check that a range is in the logs; without failOnDataLoss cut off what is not.

        Raises:
            DataLost: a part of it is not there, and that is to be an error.
        """
        first, last = self.earliest(end), self.latest(end)
        for where in sorted(end):
            if start[where] < first[where]:
                self._lost(f"{where} begins at offset {first[where]}, expected {start[where]}")
            if end[where] > last[where]:
                self._lost(f"{where} ends at offset {last[where]}, expected {end[where]}")
        end = {where: min(offset, last[where]) for where, offset in end.items()}
        start = {where: min(max(start[where], first[where]), end[where]) for where in end}
        return start, end

    def check_forward(self, reached: Offsets, latest: Offsets) -> None:
        """Check that no log ends before what was read of it.

        Raises:
            DataLost: one does, and that is to be an error.
        """
        for where, offset in sorted(reached.items()):
            if latest.get(where, offset) < offset:
                self._lost(f"{where} ends at offset {latest[where]}, it was read up to {offset}")

    def _lost(self, what: str) -> None:
        if self._options.fails_on_data_loss:
            raise DataLost(
                f"Some data may have been lost: {what}. Records were deleted or aged out, or the"
                " topic was created anew; failOnDataLoss=false reads what is there"
            )

    def _resolved(
        self,
        bound: Bound,
        partitions: list[KafkaPartition],
        which: str,
        *,
        without_match: int | None = None,
    ) -> Offsets:
        if bound.everywhere is not None:
            numbers = dict.fromkeys(partitions, bound.everywhere)
        else:
            numbers = bound.each
            different = sorted(set(partitions) ^ numbers.keys())
            if different:
                raise InvalidOption(
                    f"{which} offsets name {len(numbers)} partitions, expected exactly the"
                    f" {len(partitions)} of the read; {different[0]} is in one of them only"
                )
        if bound.kind == "offsets":
            special = {where: number for where, number in numbers.items() if number < 0}
            found = self._client.offsets(special, is_committed=self._options.is_committed)
            return numbers | found
        found = self._client.offsets(numbers, is_committed=self._options.is_committed)
        if without_match is None:
            unmatched = [where for where, offset in found.items() if offset < 0]
            return found | self.latest(unmatched)
        return found
