"""Cursors: positions of subscribers in a managed ledger, with everything they acknowledged."""
