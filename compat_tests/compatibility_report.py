"""Compatibility report: the table of what was tried with which client, and how it went.

Rule: pure; rows in, text out, and back. A partial run replaces its own rows and keeps the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_COLUMNS = ("client", "version", "feature", "result")
_RESULT_CHARACTERS_MAX = 160
WORKS = "works"

_HEAD = """\
# Compatibility

Clients of other people, each at the version that its registry serves and this project pins, against
a kledger that runs as a process. `python -m pytest compat_tests` runs everything and writes this
page; `-m "not slow"` runs the quick part and rewrites only its rows. The same tests pass against
Apache Kafka with `--server kafka`, but for those about native clients, which it does not have.
The programs in Go, JavaScript, Rust and Java are slow tests, and need `go`, `npm`, `cargo` with the
headers of OpenSSL (`libssl-dev`), `mvn`.

"""


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Row:
    """One feature tried with one client."""

    client: str
    version: str
    feature: str
    result: str


def failure_result(message: str) -> str:
    """Shorten the message of a failed test to one cell."""
    first = next((line.strip() for line in message.splitlines() if line.strip()), "no message")
    if len(first) > _RESULT_CHARACTERS_MAX:
        first = first[: _RESULT_CHARACTERS_MAX - 1] + "…"
    return f"fails: {first}"


def merge(old: Iterable[Row], new: Iterable[Row], *, is_complete: bool) -> list[Row]:
    """Put the rows of a run in place of the older ones of the same client and feature.

    Args:
        old: rows of the page as it is.
        new: rows of this run.
        is_complete: the run tried everything, so a row it did not produce is about nothing now.

    Returns:
        Rows in the order of the page.
    """
    rows = {} if is_complete else {(row.client, row.feature): row for row in old}
    rows |= {(row.client, row.feature): row for row in new}
    return sorted(rows.values())


def render(rows: Iterable[Row]) -> str:
    """Write the page."""
    rows = list(rows)
    good = sum(row.result == WORKS for row in rows)
    lines = [_HEAD + f"{good} of {len(rows)} work.", ""]
    lines.append(_line(_COLUMNS))
    lines.append(_line(["---"] * len(_COLUMNS)))
    lines += [_line([row.client, row.version, row.feature, row.result]) for row in rows]
    return "\n".join(lines) + "\n"


def parse(text: str) -> list[Row]:
    """Read the rows back from a page that render() wrote; anything else on it is passed over."""
    rows = []
    for line in text.splitlines():
        cells = _cells(line)
        if len(cells) == len(_COLUMNS) and cells[0] not in ("client", "---"):
            rows.append(Row(client=cells[0], version=cells[1], feature=cells[2], result=cells[3]))
    return rows


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _cells(line: str) -> list[str]:
    """Split a table line at the bars that are not escaped."""
    if not (line.startswith("| ") and line.endswith(" |")):
        return []
    bar = "\0"
    plain = line[2:-2].replace("\\|", bar)
    return [cell.replace(bar, "|") for cell in plain.split(" | ")]
