"""Metadata of managed ledgers: keys, row formats, the list of ledgers, plans of retention.

Rule: each change has the next version of the metadata, or is refused.
Must not know: threads, the event loop.
"""
