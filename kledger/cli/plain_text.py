"""Plain text for a terminal: tables, and any bytes of clients.

Rule: a line has no line break, whatever bytes it shows; different bytes give different text.
Must not know: what is shown.
"""

from collections.abc import Iterator, Sequence

from kledger.batches.buffers import Buffer


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield aligned lines: texts to the left, numbers to the right."""
    cells = [[_cell(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    is_number = [
        any(isinstance(cell, int) for cell in column) for column in zip(*rows, strict=True)
    ] or [False] * len(headings)
    for row in [list(headings), *cells]:
        aligned = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        ]
        yield "  ".join(aligned).rstrip()


def part(name: str, data: bytes | None) -> str:
    """Return a named value with its size; a value may be missing."""
    return f"{name}=null" if data is None else f"{name}[{len(data)}]={shown(data)}"


def text_of(data: bytes | None) -> str | None:
    r"""Return bytes as text for JSON, those that are not UTF-8 as \x and two digits."""
    return None if data is None else data.decode("utf-8", "backslashreplace")


def shown(data: Buffer) -> str:
    r"""Return bytes as quoted text; bytes that are not printable UTF-8 as \x and two digits."""
    return quoted(bytes(data).decode("utf-8", "surrogateescape"))


def quoted(text: str) -> str:
    r"""Return a text between quotes, on one line; what cannot be printed as \x and two digits."""
    if not text.isprintable() or '"' in text or "\\" in text:
        text = text.translate(_ESCAPES)
    return f'"{text}"'


class _Escapes(dict[int, str]):
    """The escape of each character, computed at its first use."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character in {'"', "\\"}:
            written = "\\" + character
        elif character.isprintable():
            written = character
        else:
            data = character.encode("utf-8", "surrogateescape")
            written = "".join(f"\\x{byte:02x}" for byte in data)
        self[code] = written
        return written


_ESCAPES = _Escapes()


def _cell(value: object) -> str:
    return "-" if value is None else _bare(str(value))


def _bare(text: str) -> str:
    return text if text.isprintable() else text.translate(_ESCAPES)
