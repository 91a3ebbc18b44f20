"""Security: users and how they prove who they are, and the rules of what they may do.

Rule: pure state machines decide on tokens and rules; what is stored is rows of the ledger store.
Must not know: the Kafka protocol's messages, sockets, gRPC.
"""
