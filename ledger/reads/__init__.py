"""Reads of entries: the cache of newest entries, read-ahead, and reads from storage in threads.

Rule: a read never waits for an append and never opens a cursor.
Must not know: subscriptions, Kafka.
"""
