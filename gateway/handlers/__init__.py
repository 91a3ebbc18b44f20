"""One module per API key of Kafka; `gateway.served_apis` lists them.

Rule: handlers never import each other.
Must not know: sockets, the order of responses.
"""
