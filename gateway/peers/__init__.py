"""Peers: what the brokers of one cluster ask each other so that transactions span them.

Rule: two requests of Kafka's protocol, over UNIX sockets in the brokers' folders or over TCP; see
docs/decisions/0041. A single server does not import this package.
"""
