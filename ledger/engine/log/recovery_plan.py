"""Recovery plan: what to do with the end of the log after any way of stopping.

Rule: what a sync covered must be there, or the store does not start; what no sync covered may be
damaged in any way and is cut off from the first damage on. The proof of a sync is the watermark of
the durable index, or a commit frame that was written after the sync.
Must not know: how the log is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Watermark(NamedTuple):
    """Up to where the durable index holds the log: the end of a group, and its number."""

    file: int
    position: int
    group: int


@dataclass(frozen=True, slots=True)
class TailDamage:
    """The first place behind the watermark that is neither a whole group nor the end."""

    file: int
    position: int
    reason: str


class LaterCommit(NamedTuple):
    """A commit frame found behind the damage; the rest of its group may be anything."""

    file: int
    position: int
    group: int
    synced_group: int


@dataclass(frozen=True, slots=True)
class KeepTail:
    """The log is intact: append at its end."""


@dataclass(frozen=True, slots=True)
class TruncateTail:
    """A torn tail: cut `file` at `position`, and remove the files in `files_removed`."""

    file: int
    position: int
    files_removed: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Synced data is damaged: do not start, change nothing."""

    file: int
    position: int
    reason: str


RecoveryPlan: TypeAlias = KeepTail | TruncateTail | Refuse


def plan_recovery(
    *,
    watermark: Watermark,
    end: Watermark,
    damage: TailDamage | None,
    later_commits: Sequence[LaterCommit],
    files: Sequence[int],
) -> RecoveryPlan:
    """Decide from what a scan of the log behind the watermark found.

    Args:
        watermark: where the scan began.
        end: where the last whole group ended, and its number.
        damage: what stands there, None if nothing does.
        later_commits: commit frames anywhere behind the damage.
        files: numbers of all files, ascending.

    Four cases:
        1. no damage;
        2. the log does not even reach the watermark: it was durable once, so it is corrupt;
        3. a later commit knows of a sync that covered the damaged group: corrupt;
        4. nobody knows of such a sync: a torn tail.
    """
    if damage is None:
        return KeepTail()
    is_below = (damage.file, damage.position) < (watermark.file, watermark.position)
    if is_below or watermark.file not in files:
        return Refuse(damage.file, damage.position, damage.reason)
    for commit in later_commits:
        if commit.synced_group > end.group:
            return Refuse(
                damage.file,
                damage.position,
                f"{damage.reason}; group {end.group + 1} was durable when group {commit.group} "
                f"was written at position {commit.position} of file {commit.file}",
            )
    removed = tuple(file for file in files if file > end.file)
    return TruncateTail(end.file, end.position, removed, damage.reason)
