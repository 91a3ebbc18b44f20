"""TODO face of native/client."""
