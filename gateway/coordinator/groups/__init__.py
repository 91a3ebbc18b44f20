"""The shell of groups: finds them, performs their effects, stores their rows and offsets.

Rule: a group is served from memory; what a request changes is durable before its answer is sent.
Must not know: the wire; handlers translate.
"""
