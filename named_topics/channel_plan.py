"""Channel plan: the number of channels of a topic, their leader, and the channels of each member.

Rule: the allocation of Coherence's topics. Members are ordered by id and get contiguous channels;
what the division leaves over goes one by one to the first members; of more members than channels
the last ones get none. One broker of a cluster leads all channels of a topic.
Must not know: what members are; both façades may use it.
"""

from collections.abc import Iterable, Sequence
from math import isqrt

from kledger.named_topics.errors import WrongArgument

PARTITION_COUNT_DEFAULT = 257
"""The partitions of a Coherence cache service, by which it counts channels."""


def default_channel_count(partition_count: int = PARTITION_COUNT_DEFAULT) -> int:
    """Return the default number of channels: 17 for 257 partitions.

    Source: `Subscriber`, "Channels": the next prime above the square root of the partition count,
    and no more than there are partitions.
    """
    candidate = isqrt(partition_count) + 1
    while not _is_prime(candidate):
        candidate += 1
    return min(partition_count, candidate)


def check_one_leader(topic: str, leaders: Sequence[int]) -> None:
    """Check that one broker leads all channels; its store has what is stored of the groups.

    Args:
        topic: its name.
        leaders: the broker of each channel; empty: the only one.

    Raises:
        WrongArgument: there are several.
    """
    brokers = sorted(set(leaders))
    if len(brokers) > 1:
        raise WrongArgument(
            f"channels of {topic}: expected one broker that leads all of them, got "
            f"{', '.join(map(str, brokers))}"
        )


def allocate(channel_count: int, members: Iterable[int]) -> dict[int, range]:
    """Allocate all channels to the members.

    Args:
        channel_count: how many channels there are.
        members: their ids, in any order.

    Returns:
        The channels of every member; those of one are contiguous, none are empty ranges.
    """
    ordered: Sequence[int] = sorted(members)
    if not ordered:
        return {}
    share, left_over = divmod(channel_count, len(ordered))
    allocated: dict[int, range] = {}
    first = 0
    for index, member in enumerate(ordered):
        end = first + share + (index < left_over)
        allocated[member] = range(first, end)
        first = end
    return allocated


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % each for each in range(2, isqrt(number) + 1))
