"""TODO face of ledger/engine/log."""
