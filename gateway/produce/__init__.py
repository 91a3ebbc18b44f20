"""Produce: the request from its parsed form to its response.

Rule: a batch is stored as it came; nothing here decodes records.
Must not know: sockets, how the ledger stores entries.
"""
