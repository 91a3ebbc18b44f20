"""One partition as a log of record batches, over its managed ledger.

Rule: offsets are given out and producers admitted here, synchronously; the ledger confirms.
Must not know: wire formats, connections, committed offsets.
"""
