"""One partition as a log of record batches, over its managed ledger.

Rule: offsets are assigned and producers admitted synchronously; the ledger confirms later.
Must not know: wire formats, connections, committed offsets.
"""
