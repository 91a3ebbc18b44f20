"""Offload: closed ledgers in a second storage, the tier.

Must not know: topics, Kafka.
"""
