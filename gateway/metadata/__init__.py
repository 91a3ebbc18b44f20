"""Topics as requests name them: look-up, opening, and how responses describe them.

Rule: a look-up costs no await when the partition is open.
Must not know: the log of a partition.
"""
