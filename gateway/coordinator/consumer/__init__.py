"""TODO face of gateway/coordinator/consumer."""
