"""Channel reads: the elements of one channel, as whole stored batches.

Rule: only what is committed is an element: control batches and aborted ones are left out, and
nothing is read from the last stable offset on. A batch is returned as it is stored; the offsets say
which of its records are meant.
Must not know: groups, subscribers.
"""

from kledger.batches.header import FLAGS_AT, read_header
from kledger.delivery.read_committed_filter import MARKED, ReadCommittedFilter
from kledger.ledger import Buffer, Entry, Position
from kledger.named_topics.model import ChannelElements, ChannelFetch
from kledger.topics import PartitionLog
from kledger.topics.errors import OffsetOutOfRange


async def read_channel(
    log: PartitionLog, fetch: ChannelFetch, *, head_offset: int, bytes_max: int
) -> ChannelElements | None:
    """Read the next elements of a channel.

    Args:
        log: of the channel.
        fetch: from where; an offset before the head leads to the head.
        head_offset: of the first element that is there.
        bytes_max: how much at most, but for one larger batch.

    Returns:
        None if there is nothing; the batches are none if everything that was read is hidden.

    Raises:
        TopicsError: the log cannot be read.
    """
    offset = max(fetch.offset, head_offset, log.log_start_offset)
    if offset >= log.last_stable_offset:
        return None
    found = await log.read(offset, bytes_max, read_committed=True)
    if isinstance(found.error, OffsetOutOfRange):
        return None  # the log start moved meanwhile; the next poll begins there
    if found.error is not None:
        raise found.error
    if not found.chunks:
        return None
    return ChannelElements(
        channel=fetch.channel,
        ownership=fetch.ownership,
        start_offset=offset,
        next_offset=read_header(found.chunks[-1]).last_offset + 1,
        batches=tuple(bytes(each) for each in _visible(log, found.chunks)),
    )


def _visible(log: PartitionLog, chunks: list[Buffer]) -> list[Buffer]:
    """Return the batches that are not hidden; without transactions this reads one byte of each."""
    if not any(chunk[FLAGS_AT] & MARKED for chunk in chunks):
        return chunks
    entries = [Entry(Position(0, index), chunk) for index, chunk in enumerate(chunks)]
    hidden = ReadCommittedFilter(log).visibility_of(entries).hidden
    return [chunk for entry, chunk in zip(entries, chunks, strict=True) if entry[0] not in hidden]
