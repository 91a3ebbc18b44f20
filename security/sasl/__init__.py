"""SASL mechanisms: pure state machines that decide on the tokens of one login (RFC 4422).

Rule: a mechanism gets tokens and returns steps; it neither waits nor reads a clock.
Must not know: connections, Kafka's requests, where credentials are stored.
"""
