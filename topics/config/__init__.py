"""TODO face of topics/config."""
