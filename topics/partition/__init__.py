"""TODO face of topics/partition."""
