"""Dispatch: which consumer of a subscription gets which records.

Rule: states are pure, one for each subscription type; the dispatcher performs what they return.
Must not know: topics, connections, how messages travel.
"""
