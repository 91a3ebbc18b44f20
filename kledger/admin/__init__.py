"""The admin listener: health and metrics over HTTP.

Rule: it only reads; every change goes through the Kafka or the native listener. Imported only if
the listener is set, as HTTP takes longer to load than a server to start.
"""
