"""The managed ledger: one unbounded log made of ledgers, and its handle.

Rule: a managed ledger has one open handle; opening another one fences it.
Must not know: record batches, Kafka.
"""
