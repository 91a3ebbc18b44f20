"""The transaction coordinator: producer ids, transactions, outcomes and markers.

Rule: an outcome is durable before any marker is written.
Must not know: the wire; handlers translate.
"""
