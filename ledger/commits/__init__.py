"""Group commit: entries and rows of one tick, written and synced together.

Rule: everything is confirmed in the order of submission.
Must not know: what entries and rows mean.
"""
