"""Groups of the consumer protocol (KIP-848), their classic members, and their rows.

Rule: nothing here awaits, logs or reads a clock.
Must not know: storage, sockets.
"""
