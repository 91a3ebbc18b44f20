"""The record batch (magic 2): the one entry format that every façade stores and reads.

Rule: pure functions over buffers; a batch is read, patched or built, never moved or stored.
Must not know: topics, ledgers, sockets, clocks.
"""
