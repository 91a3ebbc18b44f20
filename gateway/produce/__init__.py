"""TODO face of gateway/produce."""
