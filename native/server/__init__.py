"""The server of native clients: `native.broker.Broker` over topics and subscriptions.

Rule: a link that ends says so once and opens nothing again.
Must not know: the wire, clients.
"""
