"""Classic groups: pure states of JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Rule: nothing here awaits, logs or reads a clock.
Must not know: storage, sockets.
"""
