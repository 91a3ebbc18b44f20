"""Fetch: sessions, the plan of a response, and responses that wait for bytes.

Rule: a fetch that waits costs a listener on its partitions and one timer, and no cursor.
Must not know: sockets, how the ledger stores entries.
"""
