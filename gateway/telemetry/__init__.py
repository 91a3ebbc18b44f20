"""Metrics that clients push (KIP-714): their subscriptions, and the last push of each client.

Rule: a push is checked and kept as OTLP; its metrics are not interpreted.
Must not know: sockets, the admin listener.
"""
