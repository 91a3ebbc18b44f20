"""Cursors: places in a managed ledger at which somebody stands, with all that was acknowledged."""
