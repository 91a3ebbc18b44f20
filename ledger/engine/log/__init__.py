"""The append-only entry log: frames, files, scanning and recovery.

Rule: a group counts only with its commit frame; anything after the last one is cut off.
Must not know: managed ledgers, cursors.
"""
