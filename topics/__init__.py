"""Topics: names, partitions and configuration, and a partition as a log of record batches.

Rule: both façades append and read here, so offsets are given out, producers admitted and time
rules kept in one place.
Must not know: wire formats, connections, committed offsets of groups.
"""
