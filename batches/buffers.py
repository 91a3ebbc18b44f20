"""The kinds of buffer that batches are read from and built into.

Rule: one name for the union, so that no signature spells it again.
Must not know: the owners of buffers.
"""

Buffer = bytes | bytearray | memoryview
WritableBuffer = bytearray | memoryview
