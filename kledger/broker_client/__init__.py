"""A small blocking Kafka client, for data sources and the command line.

Rule: it imports `gateway.wire` and how clients log in, and nothing else of a server.
"""
