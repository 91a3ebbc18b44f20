"""TODO face of gateway/coordinator/classic."""
