"""TODO face of ledger/commits."""
