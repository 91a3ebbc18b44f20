"""Cursor stats: the numbers of one cursor that are shown.

Rule: plain values.
Must not know: where they come from.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorStats:
    """Numbers of one cursor; the last two under the names of PIP-269."""

    backlog: int
    hole_count: int
    revision_num: int
    is_under_revision: bool
