"""Topics and partitions that requests name: look-up, opening, description.

Rule: a look-up costs no await when the partition is open.
Must not know: how a log stores records.
"""
