"""The native client: producers, consumers and readers over `native.broker.Broker`.

Rule: the same code runs embedded and remote.
Must not know: the connection to a broker, the server.
"""
