"""Security: authentication of users, and the access rules that authorize them.

Rule: pure state machines decide on tokens and rules; what is stored is rows of the ledger store.
Must not know: the Kafka protocol's messages, sockets, gRPC.
"""
