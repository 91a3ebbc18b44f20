"""The Kafka façade: sockets in, answers out, over topics, offsets and groups.

Rule: Kafka's words only; what a handler decides it decides on plain values.
Must not know: how the ledger stores entries, the native façade.
"""
