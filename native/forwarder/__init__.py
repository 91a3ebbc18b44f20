"""Forwards a topic to another server, with its keys, headers and timestamps.

Rule: a batch is acknowledged at the source when the target has stored it.
Must not know: how either server stores records.
"""
