"""Quotas of clients: bandwidth, request time and changes of topics.

Rule: a quota delays a response, and never loses it.
Must not know: sockets.
"""
