"""Rows of managed ledgers: keys, formats, the list of ledgers, and retention as a plan.

Rule: each change carries the version that must be the next one.
Must not know: threads, the event loop.
"""
