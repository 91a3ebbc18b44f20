"""Recovery plan: what to do with the end of the log after a stop or a crash.

Rule: synced groups must be intact, or the store does not start; unsynced groups may be damaged in
any way and are cut off from the first damage on. The proof of a sync is the watermark of the
durable index, or a commit frame that was written after the sync.
Must not know: how the log is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Watermark(NamedTuple):
    """How far the durable index covers the log: the end of a group, and its number."""

    file: int
    position: int
    group: int


@dataclass(frozen=True, slots=True)
class TailDamage:
    """The first position after the watermark that begins neither a whole group nor the end."""

    file: int
    position: int
    reason: str


class LaterCommit(NamedTuple):
    """A commit frame after the damage; the rest of its group may be damaged, too."""

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
    """Decide by the result of a scan of the log after the watermark.

    Args:
        watermark: where the scan began.
        end: where the last whole group ended, and its number.
        damage: the damage found there, None if there is none.
        later_commits: commit frames anywhere after the damage.
        files: numbers of all files, ascending.

    Four cases:
        1. no damage;
        2. the log ends before the watermark: it was durable once, so it is corrupt;
        3. a later commit frame proves a sync that covered the damaged group: corrupt;
        4. there is no such proof: a torn tail.
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
