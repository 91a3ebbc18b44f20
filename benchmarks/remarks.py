"""Remarks: why a target is missed, in words, for the page that a run writes.

Rule: one remark for each case and figure that is known to miss; it is printed only while it misses.
"""

from __future__ import annotations

REMARKS: dict[tuple[str, str, str], str] = {}
"""(case, figure, subject) -> why."""
