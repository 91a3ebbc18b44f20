"""One module per API key: the request, the response and their structs, as Kafka 4.3 defines them.

Rule: a module is imported by its handler alone; the facts are checked against Kafka's own list.
Must not know: what a field means to the server.
"""
