"""The index of the entry log, in RocksDB: locations of entries, rows, and used space.

Rule: the index is never ahead of the durable log.
Must not know: managed ledgers, cursors.
"""
