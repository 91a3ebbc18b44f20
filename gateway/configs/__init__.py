"""Configuration resources: topics, brokers, groups and client metrics, shown and altered.

Rule: a value is checked, then durable, then in force.
Must not know: the wire; handlers translate.
"""
