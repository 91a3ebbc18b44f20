"""TODO face of gateway/coordinator/transactions."""
