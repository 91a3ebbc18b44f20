"""The Kafka façade: requests in, responses out, over topics, offsets and groups.

Rule: Kafka's terms only; decisions are made on plain values.
Must not know: how the ledger stores entries, the native façade.
"""
