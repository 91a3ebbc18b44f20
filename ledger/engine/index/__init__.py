"""TODO face of ledger/engine/index."""
