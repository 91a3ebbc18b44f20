"""The append-only entry log: frames, files, scanning and recovery.

Rule: what a commit frame closes is whole; the rest never happened.
Must not know: managed ledgers, cursors.
"""
