"""TODO face of gateway/coordinator/groups."""
