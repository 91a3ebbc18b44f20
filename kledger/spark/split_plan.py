"""Which offsets a micro-batch and its tasks read.

Rule: pure; ranges are half open, empty ones are left out, and a range is never read by two tasks.
Must not know: brokers, Spark.
"""

from collections.abc import Mapping

from kledger.spark.offset_range import KafkaPartition, OffsetRange


def split_ranges(ranges: list[OffsetRange], partitions_min: int | None) -> list[OffsetRange]:
    """Divide ranges so that there are about `partitions_min` of them, large ones into more.

    Source: Spark's KafkaOffsetRangeCalculator, which divides in proportion to the sizes.
    """
    ranges = [each for each in ranges if each.size > 0]
    if partitions_min is None or len(ranges) >= partitions_min:
        return ranges
    total = sum(each.size for each in ranges)
    found = []
    for each in ranges:
        parts = max(1, round(each.size / total * partitions_min))
        edges = [each.start + each.size * part // parts for part in range(parts + 1)]
        found += [
            OffsetRange(each.where, edges[part], edges[part + 1])
            for part in range(parts)
            if edges[part] < edges[part + 1]
        ]
    return found


def limited_end(
    start: Mapping[KafkaPartition, int], end: Mapping[KafkaPartition, int], limit: int | None
) -> dict[KafkaPartition, int]:
    """Move ends back so that there are about `limit` offsets between start and end.

    Every partition gets its share of the limit, and one offset at least, so none starves.

    Source: Spark's KafkaMicroBatchStream.rateLimit.
    """
    sizes = {where: max(0, offset - start.get(where, offset)) for where, offset in end.items()}
    total = sum(sizes.values())
    if limit is None or total <= limit:
        # A partition whose end went back, since a log was cut, keeps where it was.
        return {where: max(offset, start.get(where, offset)) for where, offset in end.items()}
    found = {}
    for where, offset in end.items():
        begin = start.get(where, offset)
        share = max(1, limit * sizes[where] // total) if sizes[where] else 0
        found[where] = begin + share
    return found
