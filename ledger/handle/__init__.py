"""The managed ledger: one unbounded log made of ledgers, and its handle.

Rule: one handle of a name is open; a newer one fences it.
Must not know: record batches, Kafka.
"""
