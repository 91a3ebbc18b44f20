"""Which groups are forgotten or written again, and which objects are swept."""

from uuid import UUID

from kledger.ledger.cluster.database import GroupId, WalGroup
from kledger.ledger.cluster.object_format import HEADER_SIZE, ObjectName
from kledger.ledger.cluster.wal_gc_plan import (
    GarbageLimits,
    plan_forgetting,
    plan_rewriting,
    plan_sweep,
)
from kledger.ledger.cluster.wal_index import FileUse, file_of

LIMITS = GarbageLimits(
    inline_age_ms=60,
    inline_bytes_max=1000,
    dead_share_max=0.2,
    dead_bytes_min=100,
    blocks_max=50,
    rewrite_bytes_max=300,
    merged_groups_min=3,
    settle_ms=10,
)
KEY = ObjectName(UUID(int=7), 3, 41).key(0)


def use(
    live: int, *, size: int = 100, blocks: int = 1, inline: bool = False, added_ms: int = 0
) -> FileUse:
    """A group with so many bytes of blocks."""
    group = WalGroup(None if inline else KEY, size + HEADER_SIZE, size + HEADER_SIZE)
    return FileUse(group, added_ms, blocks if live else 0, live)


def rewritten(
    *files: FileUse, inline_bytes: int = 0, block_count: int = 0, now_ms: int = 100
) -> list[int]:
    return plan_rewriting(
        dict(enumerate(files)),
        inline_bytes=inline_bytes,
        block_count=block_count,
        now_ms=now_ms,
        limits=LIMITS,
    )


def test_group_is_forgotten_if_nothing_is_read_from_it_and_the_index_is_past_it() -> None:
    files = {file_of(GroupId(2, seq)): use(seq % 2) for seq in range(1, 9)}
    expected = [file_of(GroupId(2, seq)) for seq in (2, 4)]
    assert expected == plan_forgetting(files, GroupId(2, 5))
    assert [] == plan_forgetting(files, GroupId(1, 99))
    assert 4 == len(plan_forgetting(files, GroupId(3, 1)))


def test_inline_groups_are_collected_when_one_is_old_or_there_are_many() -> None:
    files = use(10, inline=True, added_ms=50), use(10), use(10, inline=True, added_ms=90)
    assert [] == rewritten(*files, now_ms=109)
    assert [0, 2] == rewritten(*files, now_ms=110)
    assert [0, 2] == rewritten(*files, inline_bytes=1001)


def test_one_step_copies_so_much_and_at_least_one_group() -> None:
    big, small = use(400, size=400, inline=True), use(150, size=150, inline=True)
    assert [0] == rewritten(big, small)
    assert [0, 1] == rewritten(small, small, small)


def test_groups_with_the_least_alive_are_copied_first() -> None:
    files = use(90), use(10), use(100), use(0), use(40)
    assert [1, 4, 0] == rewritten(*files)


def test_little_that_is_dead_stays() -> None:
    assert [] == rewritten(use(10), use(100)), "below the absolute limit"
    assert [] == rewritten(*[use(90)] * 15), "below the share"
    assert [0, 1, 2] == rewritten(*[use(70)] * 5)[:3]


def test_young_objects_stay() -> None:
    assert [] == rewritten(*[use(10, added_ms=91)] * 5)


def test_groups_of_small_blocks_are_merged() -> None:
    shapes = (100, 2), (90, 30), (100, 20), (80, 10)
    files = [use(live, size=live, blocks=blocks) for live, blocks in shapes]
    assert [] == rewritten(*files, block_count=50)
    assert [1, 2, 3] == rewritten(*files, block_count=51)
    assert [] == rewritten(files[0], files[1], block_count=51), "too few to be worth it"


def test_objects_of_earlier_epochs_are_swept_unless_a_group_names_them() -> None:
    keys = {epoch: ObjectName(UUID(int=7), epoch, 1).key(0) for epoch in (1, 2, 3, 4)}
    listed = [*keys.values(), "wal/something/else"]
    swept = plan_sweep(listed, own_epoch=3, is_referenced=lambda key: key == keys[2])
    assert [keys[1]] == swept
