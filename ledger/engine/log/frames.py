"""Frames: the layout of the entry log, bytes to values and back.

Rule: every byte of a group is covered by a checksum, and by one only: a body by `body crc`, a
header by its own CRC, and the group's `checksum` is the sum of the header CRCs, so that no byte is
summed twice. A frame has the number of its file and its position, so that an old block is never
taken for a new one.
Must not know: files and how they are written.

All numbers are little-endian. Every frame but commit: a header, then the body.

| offset | size | name        | content                                                        |
|--------|------|-------------|----------------------------------------------------------------|
| 0      | 2    | magic       | 0x4C4B ("KL")                                                  |
| 2      | 1    | version     | 1                                                              |
| 3      | 1    | kind        | 1 entry, 2 rows, 3 drop, 4 commit, 5 moves                     |
| 4      | 4    | file        | number of the log file                                         |
| 8      | 4    | position    | of this frame in the file                                      |
| 12     | 4    | body length |                                                                |
| 16     | 8    | ledger id   | entry frames only, else 0                                      |
| 24     | 8    | entry id    | entry frames only, else 0                                      |
| 32     | 4    | body crc    | CRC32C of the body                                             |
| 36     | 4    | header crc  | CRC32C of the bytes 0 to 35                                    |
| 40     |      | body        | entry: the data; drop: ledger ids of 8 bytes; others see below |

A row in the body of a rows frame: key length (4), value length (4, signed, -1 deletes the key),
key, value. A run of moves in the body of a moves frame: number of its first entry in the group (4),
number of entries (4), their old file (4), the old position of each (4). A moves frame follows the
entries that it is about. The commit frame closes a group:

| offset | size | name         | content                                                       |
|--------|------|--------------|---------------------------------------------------------------|
| 0      | 12   |              | as above                                                      |
| 12     | 4    | frame count  | frames of the group before this one                           |
| 16     | 8    | group        | number of the group; the first one of a folder is 1           |
| 24     | 8    | synced group | every group up to this one was durable when this was written  |
| 32     | 4    | group bytes  | length of those frames                                        |
| 36     | 4    | checksum     | sum of their header CRCs, modulo 2**32                        |
| 40     | 4    | commit crc   | CRC32C of the bytes 0 to 39                                   |
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from kledger.ledger.engine.base import Buffer, CommitGroup, Move, Row

VERSION = 1
ENTRY, ROWS, DROP, COMMIT, MOVES = 1, 2, 3, 4, 5

HEADER_SIZE = 40
COMMIT_SIZE = 44
INLINE_BYTES_MAX = 4096
"""A body up to this size is copied after its header, which costs less than a separate buffer."""
SCRATCH_BYTES = 16 * 1024
SCRATCH_KEPT_BYTES_MAX = 1024 * 1024

_MAGIC = 0x4C4B
_TAGS = {kind: _MAGIC | VERSION << 16 | kind << 24 for kind in (ENTRY, ROWS, DROP, COMMIT, MOVES)}
_KINDS = {tag: kind for kind, tag in _TAGS.items()}
_ENTRY_TAG = _TAGS[ENTRY]
_HEADER = Struct("<IIIIQQI")
_COMMIT = Struct("<IIIIQQII")
_CRC = Struct("<I")
_TAG_AND_FILE = Struct("<II")
_ROW = Struct("<Ii")
_RUN = Struct("<III")
_EXTRA_FRAMES_MAX = 3
_U32 = 0xFFFFFFFF
_REST_SIZE = _EXTRA_FRAMES_MAX * HEADER_SIZE + COMMIT_SIZE
"""Room for the headers of the frames that are not entries."""


class FrameDamaged(Exception):
    """The bytes are not a frame that was written at this position."""


class FrameHeader(NamedTuple):
    """The header of any frame but commit."""

    kind: int
    body_length: int
    ledger_id: int
    entry_id: int
    body_crc: int
    header_crc: int


class CommitFrame(NamedTuple):
    """The frame that closes a group."""

    frame_count: int
    group: int
    synced_group: int
    group_bytes: int
    checksum: int


class GroupEncoder:
    """Encodes groups into buffers to be written, one group after the other.

    The buffers of a group are valid until the next call of `encode`; large bodies are the buffers
    of the caller, not copies. `size` and `frame_count` describe the last group.
    """

    __slots__ = ("_scratch", "frame_count", "size")

    def __init__(self) -> None:
        self._scratch = bytearray(SCRATCH_BYTES)
        self.size = 0
        self.frame_count = 0

    def encode(
        self, group: CommitGroup, file: int, position: int, number: int, synced_group: int
    ) -> list[Buffer]:
        """Return the buffers of a group that will be written at `position`, in order."""
        entries = group.entries
        room = len(entries) * (HEADER_SIZE + INLINE_BYTES_MAX) + _REST_SIZE
        if not room <= len(self._scratch) <= SCRATCH_KEPT_BYTES_MAX:
            self._fit(entries)
        scratch, view = self._scratch, memoryview(self._scratch)
        pack_header, pack_crc, crc = _HEADER.pack_into, _CRC.pack_into, crc32c
        tag = _TAGS[ENTRY]
        start, at, checksum = position, 0, 0
        cuts: list[tuple[int, Buffer]] = []
        for ledger_id, entry_id, data in entries:
            length = len(data)
            pack_header(scratch, at, tag, file, position, length, ledger_id, entry_id, crc(data))
            end = at + 36
            header_crc = crc(view[at:end])
            pack_crc(scratch, end, header_crc)
            checksum += header_crc
            at = end + 4
            if length <= INLINE_BYTES_MAX:
                view[at : at + length] = data
                at += length
            else:
                cuts.append((at, data))
            position += HEADER_SIZE + length
        self.frame_count = len(entries)
        if group.rows or group.drops or group.moves:
            for kind, body in _extra_frames(group):
                checksum += _pack_extra(view[at:], kind, body, file=file, position=position)
                at += HEADER_SIZE
                cuts.append((at, body))
                position += HEADER_SIZE + len(body)
                self.frame_count += 1
        self.size = position - start + COMMIT_SIZE
        assert position <= _U32, f"a group ends at {position}, beyond what a log file can hold"
        _COMMIT.pack_into(
            scratch, at, _TAGS[COMMIT], file, position, self.frame_count, number, synced_group,
            position - start, checksum & _U32,
        )  # fmt: skip
        pack_crc(scratch, at + 40, crc(view[at : at + 40]))
        return _interleave(view, at + COMMIT_SIZE, cuts) if cuts else [view[: at + COMMIT_SIZE]]

    def _fit(self, entries: Sequence[tuple[int, int, Buffer]]) -> None:
        """Make room for all headers and inline bodies; shrink a very large scratch if possible."""
        inline = sum(length for _, _, data in entries if (length := len(data)) <= INLINE_BYTES_MAX)
        needed = len(entries) * HEADER_SIZE + inline + _REST_SIZE
        if needed > len(self._scratch) or len(self._scratch) > SCRATCH_KEPT_BYTES_MAX >= needed:
            self._scratch = bytearray(max(SCRATCH_BYTES, needed))


def _interleave(view: memoryview, size: int, cuts: list[tuple[int, Buffer]]) -> list[Buffer]:
    """Insert each body that is not in the scratch between the parts of the scratch."""
    buffers: list[Buffer] = []
    done = 0
    for at, body in cuts:
        buffers += view[done:at], body
        done = at
    buffers.append(view[done:size])
    return buffers


def _extra_frames(group: CommitGroup) -> list[tuple[int, bytes]]:
    extra = []
    if group.rows:
        extra.append((ROWS, encode_rows(group.rows)))
    if group.drops:
        extra.append((DROP, encode_drops(group.drops)))
    if group.moves:
        extra.append((MOVES, encode_moves(group.moves, group.entries)))
    return extra


def _pack_extra(view: memoryview, kind: int, body: bytes, *, file: int, position: int) -> int:
    """Write the header of a frame that is not an entry; return its CRC."""
    _HEADER.pack_into(view, 0, _TAGS[kind], file, position, len(body), 0, 0, crc32c(body))
    header_crc = crc32c(view[:36])
    _CRC.pack_into(view, 36, header_crc)
    return header_crc


def encode_rows(rows: Sequence[Row]) -> bytes:
    """Return the body of a rows frame."""
    parts: list[bytes] = []
    pack = _ROW.pack
    for key, value in rows:
        if value is None:
            parts += pack(len(key), -1), key
        else:
            parts += pack(len(key), len(value)), key, value
    return b"".join(parts)


def decode_rows(body: Buffer) -> list[Row]:
    """Return the rows in the body of a rows frame.

    Raises:
        FrameDamaged: the lengths do not add up.
    """
    rows: list[Row] = []
    raw = bytes(body)
    at, end = 0, len(raw)
    while at < end:
        if at + _ROW.size > end:
            raise FrameDamaged(f"a row is cut at {at}")
        key_length, value_length = _ROW.unpack_from(raw, at)
        at += _ROW.size
        stop = at + key_length + max(value_length, 0)
        if value_length < -1 or stop > end:
            raise FrameDamaged(f"a row of {key_length} and {value_length} bytes is cut at {at}")
        middle = at + key_length
        rows.append((raw[at:middle], None if value_length < 0 else raw[middle:stop]))
        at = stop
    return rows


def encode_drops(ledger_ids: Sequence[int]) -> bytes:
    """Return the body of a drop frame."""
    return Struct(f"<{len(ledger_ids)}Q").pack(*ledger_ids)


def decode_drops(body: Buffer) -> list[int]:
    """Return the ledger ids in the body of a drop frame.

    Raises:
        FrameDamaged: the length is no multiple of an id.
    """
    if len(body) % 8:
        raise FrameDamaged(f"{len(body)} bytes of ledger ids")
    return list(Struct(f"<{len(body) // 8}Q").unpack(body))


def encode_moves(moves: Sequence[Move], entries: Sequence[tuple[int, int, Buffer]]) -> bytes:
    """Return the body of a moves frame; the moves are in the order of their entries."""
    numbers = {ids[:2]: number for number, ids in enumerate(entries)}
    runs: list[tuple[int, int, list[int]]] = []
    for move in moves:
        number = numbers[move[:2]]
        if not runs or (number, move.file) != (runs[-1][0] + len(runs[-1][2]), runs[-1][1]):
            runs.append((number, move.file, []))
        runs[-1][2].append(move.position)
    parts: list[bytes] = []
    for first, file, positions in runs:
        parts += (
            _RUN.pack(first, len(positions), file),
            Struct(f"<{len(positions)}I").pack(*positions),
        )
    return b"".join(parts)


def decode_moves(body: Buffer, entries: Sequence[tuple[int, int, Buffer]]) -> list[Move]:
    """Return the moves in the body of a moves frame, for the entries of its group.

    Raises:
        FrameDamaged: the lengths do not add up, or there are no such entries.
    """
    moves: list[Move] = []
    at, end = 0, len(body)
    while at < end:
        if at + _RUN.size > end:
            raise FrameDamaged(f"a run of moves is cut at {at}")
        first, count, file = _RUN.unpack_from(body, at)
        at += _RUN.size
        stop = at + 4 * count
        if stop > end or first + count > len(entries):
            raise FrameDamaged(f"a run of {count} moves from entry {first} on is cut at {at}")
        positions = Struct(f"<{count}I").unpack_from(body, at)
        for (ledger_id, entry_id, _), position in zip(
            entries[first : first + count], positions, strict=True
        ):
            moves.append(Move(ledger_id, entry_id, file, position))
        at = stop
    return moves


def frame_kind(buffer: Buffer) -> int | None:
    """Return the kind of frame by its first four bytes, None if they begin no frame."""
    return _KINDS.get(_CRC.unpack_from(buffer)[0])


def decode_header(buffer: Buffer, *, file: int, position: int) -> FrameHeader:
    """Decode the header of any frame but commit that should be at a position.

    Raises:
        FrameDamaged: the bytes are not such a header.
    """
    tag, own_file, own_position, length, ledger_id, entry_id, body_crc = _HEADER.unpack_from(buffer)
    header_crc = _CRC.unpack_from(buffer, 36)[0]
    if crc32c(memoryview(buffer)[:36]) != header_crc:
        raise FrameDamaged("the header fails its CRC")
    kind = _KINDS.get(tag)
    if kind is None or kind == COMMIT:
        raise FrameDamaged(f"unknown frame 0x{tag:08x}")
    if (own_file, own_position) != (file, position):
        raise FrameDamaged(f"the frame belongs to file {own_file}, position {own_position}")
    return FrameHeader(kind, length, ledger_id, entry_id, body_crc, header_crc)


def decode_commit(buffer: Buffer, *, file: int, position: int) -> CommitFrame:
    """Decode the commit frame that should be at a position.

    Raises:
        FrameDamaged: the bytes are not a commit frame.
    """
    tag, own_file, own_position, *fields = _COMMIT.unpack_from(buffer)
    if crc32c(memoryview(buffer)[:40]) != _CRC.unpack_from(buffer, 40)[0]:
        raise FrameDamaged("the commit frame fails its CRC")
    if tag != _TAGS[COMMIT] or (own_file, own_position) != (file, position):
        raise FrameDamaged(f"the frame belongs to file {own_file}, position {own_position}")
    return CommitFrame(*fields)


def commit_mark(file: int) -> bytes:
    """Return the eight bytes with which every commit frame of a file begins."""
    return _TAG_AND_FILE.pack(_TAGS[COMMIT], file)


def sum_checksums(header_crcs: Sequence[int]) -> int:
    """Return the checksum of a group."""
    return sum(header_crcs) & _U32


def data_of_entry(
    content: memoryview, at: int, file: int, extent: tuple[int, int], ids: tuple[int, int]
) -> memoryview | None:
    """Return the data of an entry frame, not copied; None if any byte of it differs.

    It is for readers of many frames; `check_entry` says what differs.

    Args:
        content: the bytes that should hold the frame, and others.
        at: where it begins in them.
        file: as for `check_entry`.
        extent: the same.
        ids: the same.
    """
    (position, length), start = extent, at + HEADER_SIZE
    if len(content) < start + length:
        return None
    data = content[start : start + length]
    header = _HEADER.unpack_from(content, at)
    if header != (_ENTRY_TAG, file, position, length, *ids, crc32c(data)):
        return None
    is_whole = crc32c(content[at : at + 36]) == _CRC.unpack_from(content, at + 36)[0]
    return data if is_whole else None


def check_entry(
    frame: memoryview, file: int, extent: tuple[int, int], ids: tuple[int, int]
) -> memoryview:
    """Check every byte of an entry frame; return its data, not copied.

    Args:
        frame: the bytes that should be the frame.
        file: the number of the file.
        extent: position of the frame, and length of its data.
        ids: ledger id and entry id.

    Raises:
        FrameDamaged: the frame is not that entry, or any of its bytes differs.
    """
    position, length = extent
    data = frame[HEADER_SIZE:]
    expected = (_TAGS[ENTRY], file, position, length, *ids, crc32c(data))
    if len(frame) < HEADER_SIZE + length:
        raise FrameDamaged("the file ends inside the frame")
    if _HEADER.unpack_from(frame) == expected and (
        crc32c(frame[:36]) == _CRC.unpack_from(frame, 36)[0]
    ):
        return data
    header = decode_header(frame, file=file, position=position)
    if (header.kind, header.ledger_id, header.entry_id) != (ENTRY, *ids):
        raise FrameDamaged(f"the frame holds {header.ledger_id}:{header.entry_id}")
    if length != header.body_length:
        raise FrameDamaged(f"the frame has {header.body_length} bytes, expected {length}")
    raise FrameDamaged("the data fails its CRC")
