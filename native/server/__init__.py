"""TODO face of native/server."""
