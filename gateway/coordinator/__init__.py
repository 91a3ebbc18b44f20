"""Coordinators of consumer groups and of transactions.

Rule: states are pure and return effects; `runtime` performs them and decides nothing.
Must not know: sockets, API versions, message classes.
"""
