"""Peers: what the brokers of one cluster ask each other so that transactions span them.

Rule: two requests of Kafka's protocol, over UNIX sockets in the brokers' folders; see
docs/decisions/0041. A server that is alone loads nothing of this package.
"""
