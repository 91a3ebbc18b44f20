"""The server of native clients: `native.broker.Broker` over topics and subscriptions.

Rule: a link that ends calls `on_ended` once and is not reopened.
Must not know: the wire, clients.
"""
