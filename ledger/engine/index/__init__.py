"""The index of the entry log, in RocksDB: where entries are, rows, and space.

Rule: the index is behind the log and can be built again from it.
Must not know: managed ledgers, cursors.
"""
