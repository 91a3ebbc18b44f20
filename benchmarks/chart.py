"""Chart: the ratios to Apache Kafka as bars, a small SVG without a library.

Rule: pure; the same figures give the same bytes. Bars start at 1.0 on a logarithmic axis: to the
left kledger needs less (or does less), to the right more; a tick shows the target.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from benchmarks.targets import Verdict

_WIDTH, _ROW, _TOP, _LABEL = 900, 22, 54, 430
_RATIO_MIN, _RATIO_MAX = 0.125, 8.0
_GRID = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_REACHED, _MISSED, _INK, _PAPER = "#2a7f62", "#b5473c", "#222222", "#ffffff"


def ratio_chart(verdicts: Iterable[Verdict]) -> str:
    """Draw one bar for each ratio that was measured."""
    shown = [v for v in verdicts if v.target.against is not None and v.found]
    height = _TOP + _ROW * len(shown) + 16
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            f'font-family="sans-serif" font-size="12" fill="{_INK}">'
        ),
        f'<rect width="{_WIDTH}" height="{height}" fill="{_PAPER}"/>',
        '<text x="12" y="20" font-size="15">kledger / Apache Kafka, same run</text>',
    ]
    parts += [_grid_line(value, height) for value in _GRID]
    for index, verdict in enumerate(shown):
        parts += _bar(verdict, _TOP + index * _ROW)
    return "\n".join([*parts, "</svg>"]) + "\n"


def x_of(ratio: float) -> float:
    """Return the coordinate of a ratio on the axis, clipped to its ends."""
    inside = min(max(ratio, _RATIO_MIN), _RATIO_MAX)
    share = math.log(inside / _RATIO_MIN) / math.log(_RATIO_MAX / _RATIO_MIN)
    return _LABEL + share * (_WIDTH - _LABEL - 60)


def _grid_line(value: float, height: int) -> str:
    x, ink = x_of(value), "#888888" if value == 1.0 else "#dddddd"
    return (
        f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{height - 8}" stroke="{ink}"/>'
        f'<text x="{x:.1f}" y="{_TOP - 14}" text-anchor="middle">{value:g}</text>'
    )


def _bar(verdict: Verdict, y: int) -> list[str]:
    """Draw label, bar, target tick and figure of one row."""
    target, found = verdict.target, verdict.found or 1.0
    left, right = sorted((x_of(1.0), x_of(found)))
    color = _REACHED if verdict.is_reached else _MISSED
    tick = x_of(target.limit)
    sign = "≤" if target.better == "lower" else "≥"
    label = escape(f"{target.what}: {target.subject} / {target.against}")
    return [
        f'<text x="12" y="{y + 12}" font-size="11">{label}</text>',
        (
            f'<rect x="{left:.1f}" y="{y + 2}" width="{max(right - left, 1):.1f}" height="12" '
            f'fill="{color}"/>'
        ),
        (
            f'<line x1="{tick:.1f}" y1="{y - 1}" x2="{tick:.1f}" y2="{y + 17}" stroke="{_INK}" '
            f'stroke-width="2"><title>target {sign} {target.limit:g}</title></line>'
        ),
        f'<text x="{_WIDTH - 8}" y="{y + 12}" text-anchor="end">{found:.2f}</text>',
    ]
