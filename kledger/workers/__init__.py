"""Worker processes: `kledger serve --workers N`, a parent and N servers that share its addresses.

Rule: a worker is an ordinary server; what makes it one of several is in its settings and its
`WorkerIdentity`. A server without workers imports nothing of this. Reasons: docs/decisions/0040.
Must not know: requests, records, stores.
"""
