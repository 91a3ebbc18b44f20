"""TODO face of ledger/reads."""
