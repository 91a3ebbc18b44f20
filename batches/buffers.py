"""The kinds of buffer that batches are read from and built into.

Rule: one name for them, so that no signature has to spell the union again.
Must not know: who owns the buffer.
"""

Buffer = bytes | bytearray | memoryview
WritableBuffer = bytearray | memoryview
