"""Connections: sockets, frames, responses in order, and what a listener limits.

Rule: a connection serves one request at a time and sends responses in the order of requests.
Must not know: what an API means; the router finds its handler.
"""
