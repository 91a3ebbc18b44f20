"""Consumer groups (KIP-848): pure states of heartbeats, targets and members.

Rule: nothing here awaits, logs or reads a clock.
Must not know: storage, sockets.
"""
