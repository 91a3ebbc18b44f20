"""The client's side of security: what a client of ours trusts and how it logs in.

Rule: clients take Apache Kafka's client properties; what cannot work is refused before anything is
sent. Must not know: sockets, Kafka's requests, gRPC, users of a server.
"""
