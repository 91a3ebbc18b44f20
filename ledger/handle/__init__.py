"""TODO face of ledger/handle."""
