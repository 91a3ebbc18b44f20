"""Groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and their rows.

Rule: nothing here awaits, logs or reads a clock.
Must not know: storage, sockets, groups of the consumer protocol.
"""
