"""TODO face of gateway/fetch."""
