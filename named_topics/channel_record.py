"""The durable state of one channel of one group.

Rule: it holds from the moment its row is durable. What a subscriber has read is not in it: its
commits say so themselves, with the revision in which it read.
Must not know: subscribers, how it is stored.
"""

from typing import NamedTuple

from kledger.named_topics.model import NO_OFFSET


class ChannelRecord(NamedTuple):
    """Where a group stands in a channel.

    Attributes:
        next_offset: the roll-back position: where the next owner begins, behind the last commit.
        committed_offset: the last commit; NO_OFFSET: nothing is committed.
        revision: how often the channel was repositioned by a seek.
    """

    next_offset: int
    committed_offset: int = NO_OFFSET
    revision: int = 0
