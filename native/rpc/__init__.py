"""The native protocol over gRPC: client and server of `native.broker.Broker`.

Rule: this module imports nothing, because gRPC takes long to load.
Must not know: topics, subscriptions.
"""
