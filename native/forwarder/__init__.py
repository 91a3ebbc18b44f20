"""Forwarding a topic to another server, with its keys, headers and times.

Rule: a batch is acknowledged when the other server has stored it.
Must not know: how either server stores records.
"""
