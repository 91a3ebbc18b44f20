"""Compaction: the newest record of each key of a partition, and nothing else.

Rule: what reads records runs in a compute process; so loading a module of it loads no event loop
and no store.
Must not know: connections, consumers.
"""
