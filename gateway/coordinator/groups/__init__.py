"""The group coordinator: finds groups, stores their rows and their offsets.

Rule: a group is served from memory and was written before its answer leaves.
Must not know: the wire; handlers translate.
"""
