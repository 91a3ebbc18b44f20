"""Configurations of topics: keys, values, defaults and what is in force.

Rule: every key of Apache Kafka is known; a value is checked before it is stored.
Must not know: the wire, the log.
"""
