"""The messages between native clients and a server, as protobuf has them.

Rule: `kledger_native.proto` is the truth; the code beside it is made by `make proto` and never
edited.
Must not know: what is done with a message.
"""
