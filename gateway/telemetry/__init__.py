"""Metrics that clients push (KIP-714): subscriptions, and what was pushed last.

Rule: a push is kept as it came, and parsed piece by piece.
Must not know: sockets, the admin listener.
"""
