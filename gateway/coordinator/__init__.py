"""Coordinators: who is in a group, which generation runs, and what the group has committed.

Rule: the states are pure and give back effects; `groups` performs them and decides nothing.
Must not know: sockets, API versions, message classes.
"""
