"""The native protocol over gRPC: client and server of `native.broker.Broker`.

Rule: this package imports nothing: gRPC takes long to load.
Must not know: topics, subscriptions.
"""
