"""The admin listener: HTTP for those who look after a server.

Rule: it only looks; whatever changes something goes through the Kafka or the native listener.
Imported when the listener is asked for, as HTTP takes longer to load than a server to start.
"""
