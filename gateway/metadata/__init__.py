"""TODO face of gateway/metadata."""
