"""TODO face of ledger/metadata."""
