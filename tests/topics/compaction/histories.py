"""Random histories of a partition, and what compaction must leave of them, by plain means."""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from kledger.batches.builder import (
    BatchProducer,
    NewRecord,
    build_batch,
    build_control_batch,
)
from kledger.batches.header import read_header
from kledger.batches.reader import iterate_records
from kledger.batches.record import Record
from kledger.topics.compaction.compaction_rules import AbortedOffsets
from tests.topics.compaction.words import NOW_MS

KEYS = [None, b"", b"a", b"b", b"c", b"d" * 63, b"d" * 64, b"d" * 65, b"e" * 300]
FAR_OFFSET = 1 << 40


@dataclass
class History:
    """Stored batches, and what a reader of the whole log knows of them."""

    batches: list[bytes] = field(default_factory=list)
    aborted: list[AbortedOffsets] = field(default_factory=list)
    live: list[Record] = field(default_factory=list)
    """Records with keys that are neither markers nor aborted, in order."""

    def newest(self) -> dict[bytes, Record]:
        """The newest record of each key, tombstones too."""
        return {each.key: each for each in self.live if each.key is not None}


new_records = st.builds(
    NewRecord,
    value=st.none() | st.sampled_from([b"", b"v", b"w" * 200]) | st.binary(max_size=5),
    key=st.sampled_from(KEYS),
    timestamp=st.integers(NOW_MS - 300_000, NOW_MS) | st.integers(-1, 1 << 50),
    headers=st.lists(st.tuples(st.sampled_from(["h", "k"]), st.none() | st.just(b"x")), max_size=2),
    attributes=st.just(0),
)
data_batches = st.tuples(
    st.lists(new_records, min_size=1, max_size=12),
    st.integers(0, 4),  # codec
    st.sampled_from([None, None, 7, 8]),  # producer of a transaction
    st.none() | st.just(NOW_MS + 5),  # time of the append
    st.sampled_from([0, 0, 1, 20]),  # offsets that an earlier compaction removed
)
ends = st.tuples(st.sampled_from([7, 8]), st.booleans())


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Batches of several producers, some in transactions that end or will be aborted."""
    history, offset = History(), draw(st.integers(0, 5))
    pending: dict[int, tuple[int, list[Record]]] = {}
    for step in draw(st.lists(data_batches | ends, min_size=1, max_size=14)):
        if len(step) == 2:
            producer_id, is_commit = step
            _end(history, pending.pop(producer_id, None), producer_id, offset, is_commit=is_commit)
            batch = build_control_batch(
                is_commit=is_commit, producer_id=producer_id, producer_epoch=0,
                coordinator_epoch=0, timestamp_ms=NOW_MS, base_offset=offset,
            )  # fmt: skip
        else:
            records, codec, owner, append_time, gap = step
            offset += gap
            producer = BatchProducer()
            if owner is not None:
                producer = BatchProducer(owner, 0, 5, is_transactional=True)
            batch = build_batch(
                records, codec=codec, producer=producer, base_offset=offset,
                log_append_time_ms=append_time,
            )  # fmt: skip
            found = list(iterate_records(batch))
            if owner is None:
                history.live += found
            else:
                pending.setdefault(owner, (offset, []))[1].extend(found)
        history.batches.append(bytes(batch))
        offset = read_header(batch).last_offset + 1
    for producer_id, left in pending.items():  # the markers are behind the input
        _end(history, left, producer_id, FAR_OFFSET, is_commit=draw(st.booleans()))
    history.live.sort(key=lambda record: record.offset)
    return history


def _end(
    history: History,
    transaction: tuple[int, list[Record]] | None,
    producer_id: int,
    marker_offset: int,
    *,
    is_commit: bool,
) -> None:
    if transaction is None:
        return
    first_offset, records = transaction
    if is_commit:
        history.live += records
    else:
        history.aborted.append((producer_id, first_offset, marker_offset))
