"""WAL garbage plan: which groups are deleted, which are rewritten, which objects are swept.

Rule: a group is deleted when neither the index nor its stored rows name it; so a takeover never
needs it. The live blocks of a group are copied only for one of the three reasons below; afterwards
the group has none. An object that no group names is deleted only if its epoch is over:
the session of an older epoch can commit nothing, so no group can name it any more.
Must not know: objects, the database, clocks.

| rewritten              | when                                 | what is gained                   |
|------------------------|--------------------------------------|----------------------------------|
| inline groups          | after a minute, or half of the limit | the database stays small         |
| groups that are mostly | more than the allowed share of all   | the bucket stays small           |
| dead                   | objects is dead                      |                                  |
| groups of small blocks | the index has too many blocks        | a bounded index; readers of old  |
|                        |                                      | data send fewer GETs             |
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kledger.ledger.cluster.database import GroupId
from kledger.ledger.cluster.object_format import ObjectDamaged, ObjectName
from kledger.ledger.cluster.wal_index import FileUse, file_of


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageLimits:
    """When groups are written again.

    Attributes:
        inline_age_ms: inline bytes are collected into an object when they are older.
        inline_bytes_max: or when there are more.
        dead_share_max: of the bytes of all objects, how much may be dead.
        dead_bytes_min: and so much may be dead in any case.
        blocks_max: how many blocks the index may have; 32 bytes of memory each.
        rewrite_bytes_max: live bytes that one step copies, at least one group.
        rewrite_groups_max: groups that one step copies.
        merged_groups_min: groups of small blocks are copied so many at a time, or not: each copy
            then has blocks that are several times larger, so nothing is copied often.
        settle_ms: younger objects are not copied: their ledgers may be dropped soon.
    """

    inline_age_ms: int = 60_000
    inline_bytes_max: int = 32 * 1024 * 1024
    dead_share_max: float = 0.2
    dead_bytes_min: int = 64 * 1024 * 1024
    blocks_max: int = 250_000
    rewrite_bytes_max: int = 16 * 1024 * 1024
    rewrite_groups_max: int = 256
    merged_groups_min: int = 8
    settle_ms: int = 60_000


def plan_forgetting(files: Mapping[int, FileUse], stored_upto: GroupId) -> list[int]:
    """Return the files that no takeover needs once the index is stored as it is, or later.

    Args:
        files: of the index.
        stored_upto: the group after which a takeover will read groups.
    """
    floor = file_of(stored_upto)
    return [file for file, use in files.items() if not use.live_blocks and file <= floor]


def plan_rewriting(
    files: Mapping[int, FileUse],
    *,
    inline_bytes: int,
    block_count: int,
    now_ms: int,
    limits: GarbageLimits,
) -> list[int]:
    """Return the files whose live blocks are copied into one object next; empty: none.

    Args:
        files: of the index.
        inline_bytes: what is inline now.
        block_count: of the index.
        now_ms: the time, of the clock of `FileUse.added_ms`.
        limits: see `GarbageLimits`.
    """
    live = {file: use for file, use in files.items() if use.live_blocks}
    inline = {file: use for file, use in live.items() if use.group.object_key is None}
    due_ms = now_ms - limits.inline_age_ms
    if inline and (
        inline_bytes > limits.inline_bytes_max
        or min(use.added_ms for use in inline.values()) <= due_ms
    ):
        return _first(inline, inline, limits)
    objects = {file: use for file, use in live.items() if use.group.object_key is not None}
    settled = [file for file in objects if objects[file].added_ms <= now_ms - limits.settle_ms]
    size = sum(use.group.size for use in objects.values())
    dead = sum(use.dead_bytes for use in objects.values())
    if dead > limits.dead_bytes_min and dead > limits.dead_share_max * size:
        wasting = [file for file in settled if objects[file].dead_bytes]
        wasting.sort(key=lambda file: objects[file].live_bytes / objects[file].group.size)
        if wasting:
            return _first(objects, wasting, limits)
    if block_count > limits.blocks_max:
        settled.sort(key=lambda file: objects[file].live_bytes / objects[file].live_blocks)
        chosen = _first(objects, settled, limits)
        return chosen if len(chosen) >= limits.merged_groups_min else []
    return []


def _first(
    files: Mapping[int, FileUse], ordered: Iterable[int], limits: GarbageLimits
) -> list[int]:
    chosen: list[int] = []
    left = limits.rewrite_bytes_max
    for file in ordered:
        left -= files[file].live_bytes
        if chosen and (left < 0 or len(chosen) >= limits.rewrite_groups_max):
            break
        chosen.append(file)
    return chosen


def plan_sweep(
    keys: Iterable[str], *, own_epoch: int, is_referenced: Callable[[str], bool]
) -> list[str]:
    """Return the objects of earlier epochs that no group names: PUTs without a commit.

    Args:
        keys: what the store lists below the prefix of the cluster.
        own_epoch: of the present owner; its own objects may be committed yet.
        is_referenced: whether a group names a key.
    """
    swept = []
    for key in keys:
        try:
            name = ObjectName.of_key(key)
        except ObjectDamaged:
            continue  # not ours
        if name.epoch < own_epoch and not is_referenced(key):
            swept.append(key)
    return swept
